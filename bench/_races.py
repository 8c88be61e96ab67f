"""Races of plans on this machine or an imagined one, as the final of a search holds them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean

from _block import BenchError, Output, Result

from launch.plan import Plan
from launch.system.machine_lock import Occupant, timing_alone
from launch.use_cases import make_workload
from launch.workers.fork_server_pool import ForkServerPool
from planner.plans.plan_file import read_plan_file
from planner.sweeps.findings import share_interval
from planner.trials.contender import StartContender
from planner.trials.result import Role, TrialResult
from planner.trials.runner import TrialRunner
from planner.tuning.entrant import Entrant
from planner.tuning.race import Race
from probes.hardware import Hardware

_FIRST_OF_FINAL = 1000


@contextmanager
def alone(out: Output) -> Iterator[None]:
    """Have the machine's place for timing in this block; wait for it."""
    occupant = Occupant.of_this_process()
    with timing_alone(occupant, waits=True, on_wait=out.say, on_trouble=out.say):
        yield


def make_runner(
    use_case: str, data: Path | None, node: Hardware, servers: ForkServerPool
) -> TrialRunner:
    """Make what starts plans of a use case, and make its data ready."""
    runner = TrialRunner(make_workload(use_case, data=data), node, servers)
    runner.describe()
    return runner


def read_plan(file: Path | None, node: Hardware, batch: int) -> Plan:
    """Read the plan of a file; without one give a process with a thread on each core."""
    if file is not None:
        return read_plan_file(file).plan
    cores = node.cpu.usable_cores
    strategy = "threads" if cores > 1 else "sequential"
    return Plan(strategy=strategy, node_batch=batch, threads_per_process=cores)


def race_final(
    start: StartContender,
    plans: Sequence[Plan],
    *,
    rounds: int,
    cores: int,
    starts: int = 2,
    clock: Callable[[], float] = time.monotonic,
) -> list[TrialResult]:
    """Race plans that are started afresh, as the final of a search does.

    Args:
        start: Starts a plan.
        plans: The plans.
        rounds: Of each start.
        cores: Usable ones: with threads on all of them another program's work is a disturbance.
        starts: Of each plan.
        clock: Seconds that only go forward.

    Raises:
        BenchError: One of them fails.
    """
    race = Race(start, clock=clock, first_round=_FIRST_OF_FINAL, cores=cores)
    entrants: list[Entrant] = []
    try:
        entrants.extend(race.enter(plan, Role.FINAL, time_limit_s=math.inf) for plan in plans)
        for again in range(starts):
            for entrant in entrants if again else ():
                race.restart(entrant, time_limit_s=math.inf)
            for _ in range(rounds):
                race.run_round(entrants)
    finally:
        for entrant in entrants:
            entrant.close()
    if failures := [entrant.failure for entrant in entrants if entrant.failure]:
        raise BenchError(f"a plan failed: {failures[0].reason}")
    return [entrant.result() for entrant in entrants]


def share_result(
    figure: str, outcomes: Sequence[bool], *, low: float | None = None, high: float | None = None
) -> Result:
    """Give a share in percent, with Wilson's 95 % interval."""
    share = share_interval(fmean(outcomes), len(outcomes))
    return Result(figure, share.scaled(100), "%", low, high)
