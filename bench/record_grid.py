"""Record a grid: many plans of a use case on this machine, for searches to be replayed on.

Plans are started one after the other, in random order, and make a fixed number of steps each, in
turns with PyTorch's defaults at the smallest batch, which stay warm beside them: by these the
machine's drift, that of several plans together, is taken out of each plan's times. Run it on a
quiet machine: it takes an hour and more.
"""

from __future__ import annotations

import math
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

from launch.case_facts import CaseFacts
from launch.plan import Plan
from launch.strategies import strategy_names
from launch.system.machine_lock import Occupant, timing_alone
from launch.use_cases import make_workload
from launch.workers.fork_server_pool import ForkServerPool
from planner.plans.software import current_software
from planner.search.space import DrawnPlan, PlanSpace
from planner.trials.contender import StartContender, TrialFailedError
from planner.trials.grid import Grid, write_grid
from planner.trials.result import Outcome, Role, TrialResult
from planner.trials.runner import TrialRunner
from planner.tuning.entrant import steps_of_turn
from planner.tuning.subject import defaults_plan
from probes.hardware import Hardware
from probes.node import probe
from probes.timing import Measurement

_WARMUP_STEPS = 3
_MOST_S, _LEAST_S = 60.0, 4.0
"""Time of a plan's steps that count, at most and at least. With 1 s the best of 150 plans was 30 %
ahead of all others by four fast steps."""

_MOST_STEPS = 200
_TURNS = 4
_NEIGHBOURS = 2
"""Plans before and after one whose turns tell of the drift, too. Beside some plans of VGG16 the
defaults took three times as long and the plans as long as ever: divided by what was measured beside
them alone, these were the fastest of all."""


def main() -> None:
    """Record, and write after each plan what there is."""
    arguments = _parse()
    workload = make_workload(arguments.use_case, seed=0)
    node = probe(quick=True)
    alone = timing_alone(Occupant.of_this_process(), waits=True, on_wait=print, on_trouble=print)
    with alone, ForkServerPool() as servers:
        runner = TrialRunner(workload, node, servers)
        facts = runner.describe()
        usual = tuple(facts.default_batch * factor for factor in (1, 2, 4, 8))
        batches = tuple(int(n) for n in arguments.batches.split(",") if n) or usual
        # A replay begins with PyTorch's defaults at the use case's own batch.
        own = facts.default_batch if facts.default_batch in batches else max(batches)
        facts = replace(facts, batch_choices=batches, default_batch=own)
        results, beside_s = list[TrialResult](), list[list[float]]()
        every = _choose(facts, node, arguments.plans)
        plain = replace(defaults_plan(facts, node), node_batch=min(facts.batch_choices))
        with _Reference(runner.start, plain) as reference:
            for number, drawn in enumerate(every, start=1):
                result, turns_s = _run(runner.start, drawn, reference, arguments.steps)
                results.append(result)
                beside_s.append(turns_s)
                said = f"{results[-1].outcome} {results[-1].elapsed_s:.1f} s"
                print(f"{number} of {len(every)}: {said}, {drawn.plan}", flush=True)
                if any(result.measurement for result in results):
                    grid = Grid(
                        about=f"recorded: {number} plans of {arguments.use_case} on "
                        f"{node.cpu.model}, {node.cpu.usable_cores} cores, the machine's drift "
                        "taken out by PyTorch's defaults beside them",
                        is_synthetic=False,
                        use_case=arguments.use_case,  # not where it lies here
                        case=facts,
                        node=node,
                        software=current_software(),
                        results=tuple(_remove_drift(results, beside_s)),
                    )
                    write_grid(grid, arguments.file)


def _parse() -> Namespace:
    parser = ArgumentParser(description="Record a grid of plans.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--use-case", required=True)
    parser.add_argument("--plans", type=int, default=150)
    parser.add_argument("--steps", type=int, default=12, help="of each plan that count (12)")
    parser.add_argument("--batches", default="", help="to choose from, such as 32,64,128")
    return parser.parse_args()


class _Reference:
    """PyTorch's defaults, kept warm: how slow the machine is now shows in their steps."""

    def __init__(self, start: StartContender, plan: Plan) -> None:
        self._contender = start(plan)
        made = self._contender.make_steps(_WARMUP_STEPS, time_limit_s=10 * _MOST_S)
        self._count = steps_of_turn(made[-1].time_s)

    def take_turn(self) -> float:
        """Give the median time of a step of one turn."""
        made = self._contender.make_steps(self._count, time_limit_s=10 * _MOST_S)
        return median(step.time_s for step in made)

    def __enter__(self) -> _Reference:
        return self

    def __exit__(self, *_: object) -> None:
        self._contender.close()


def _choose(facts: CaseFacts, node: Hardware, count: int) -> list[DrawnPlan]:
    """Choose PyTorch's defaults, guesses, their neighbours and random plans, in random order."""
    space = PlanSpace(strategy_names(), facts, node)
    generator = np.random.default_rng(0)
    plain = (
        Plan(strategy="sequential", node_batch=facts.default_batch),
        defaults_plan(facts, node),
    )
    found = [space.find_plan(plan, {}) for plan in plain]
    found += [other for guess in space.guesses for other in (guess, *space.neighbours(guess))]
    chosen = {drawn.plan: drawn for drawn in found[: count * 2 // 3] if drawn is not None}
    while len(chosen) < count:
        drawn = space.draw_randomly(generator)
        if drawn is not None:
            chosen[drawn.plan] = drawn
    every = list(chosen.values())
    return [every[i] for i in generator.permutation(len(every))]


def _run(
    start: StartContender, drawn: DrawnPlan, reference: _Reference, steps: int
) -> tuple[TrialResult, list[float]]:
    """Run a plan in turns with the reference, and give the times of its turns too."""
    outcome, reason, log_tail = Outcome.OK, None, None
    measurement, peak_bytes, compile_s = None, None, None
    began, beside_s, turns_s = time.monotonic(), 0.0, list[float]()
    try:
        contender = start(drawn.plan)
        try:
            made = contender.make_steps(_WARMUP_STEPS, time_limit_s=_MOST_S)
            warmup_s = [step.time_s for step in made]
            wanted = min(_MOST_STEPS, max(steps, math.ceil(_LEAST_S / warmup_s[-1])))
            count = max(1, min(wanted, int(_MOST_S / warmup_s[-1])) // _TURNS)
            times_s = list[float]()
            for _ in range(_TURNS):
                left_s = time.monotonic()
                turns_s.append(reference.take_turn())
                beside_s += time.monotonic() - left_s
                made = contender.make_steps(count, time_limit_s=4 * _MOST_S)
                times_s += [step.time_s for step in made]
            measurement = Measurement(warmup_s=tuple(warmup_s), samples_s=tuple(times_s))
            peak_bytes, compile_s = contender.peak_memory_bytes, contender.compile_s
        finally:
            contender.close()
    except TrialFailedError as error:
        outcome, reason, log_tail = error.outcome, error.reason, error.log_tail
    result = TrialResult(
        plan=drawn.plan,
        role=Role.SEARCH,
        outcome=outcome,
        measurement=measurement,
        peak_memory_bytes=peak_bytes,
        compile_s=compile_s,
        reason=reason,
        log_tail=log_tail,
        elapsed_s=time.monotonic() - began - beside_s,
        parameters=drawn.parameters,
    )
    return result, turns_s


def _remove_drift(
    results: Sequence[TrialResult], beside_s: Sequence[Sequence[float]]
) -> Iterator[TrialResult]:
    """Divide times by how slow the reference was beside a plan and its neighbours."""
    usual_s = median(time_s for turns_s in beside_s for time_s in turns_s)
    for number, result in enumerate(results):
        near = beside_s[max(0, number - _NEIGHBOURS) : number + _NEIGHBOURS + 1]
        if (found := result.measurement) is not None:
            drift = median(time_s for turns_s in near for time_s in turns_s) / usual_s
            found = Measurement(
                warmup_s=tuple(time_s / drift for time_s in found.warmup_s),
                samples_s=tuple(time_s / drift for time_s in found.samples_s),
            )
        yield replace(result, measurement=found)


if __name__ == "__main__":
    main()
