"""Claims of a search held against this machine later: a speedup raced again, a rate launched.

With ``--again`` the stored plan and PyTorch's defaults are started afresh and raced, as in a final;
with ``--launches`` the plan is launched; races and launches alternate. Counted is how often what
they show lies in the stored interval. One search gives one interval, so that all of them stand or
fall together: with ``--searches`` each has an interval of its own.

With ``--burn`` races alternate between a quiet machine and one on which a process burns half a
core: it computes and sleeps in turn, 3 s on average and never equally long. In these races is also
the plan itself with a sleep of 5 % of its step. Of a step beside the burning process that is less
than 5 %, so their order is a little harder to tell than it has to be.
"""

from __future__ import annotations

import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean, median

from _block import (
    CASES,
    BenchError,
    Ddlplan,
    Output,
    Result,
    alternate,
    begin,
    make_parser,
    positive,
    run_bench,
)
from _burner import burning
from _launches import Launches, say_plan
from _photos import link_photos
from _races import alone, make_runner, race_final, share_result

from launch.plan import Plan
from launch.workers.fork_server_pool import ForkServerPool
from planner.api import plans
from planner.quantities import format_range, parse_duration_s
from planner.trials.comparison import compare_results
from planner.trials.contender import Contender
from planner.trials.runner import TrialRunner
from probes.node import probe
from probes.timing import Interval, paired_ratio

_SLOWED = f"{CASES}:SlowedSimpleBig"
_CASE, _SLOWER = "simplebig", 0.05
_ROUNDS, _EPOCHS = 8, 2
"""Of each start in a race; and of a launch, of which all but the first count."""

_HALF_WIDTHS = {180.0: 4.0, 600.0: 2.0}
"""Required half width of a stored speedup in percent, by the budget in seconds."""

_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class _Findings:
    """What was seen after all searches."""

    half_widths: list[float] = field(default_factory=list)
    again: list[tuple[float, Interval]] = field(default_factory=list)
    """Speedups of races, with the stored one."""

    launched: list[tuple[float, Interval]] = field(default_factory=list)
    """Rates of launches, with the stored one."""

    burnt: list[tuple[_Race, _Race]] = field(default_factory=list)
    """Races on the quiet machine and beside the process that burns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Race:
    """Ratios that a race of three plans has shown."""

    speedup: float
    to_slowed: float
    """Time of the plan with a sleep / of the plan."""


def main() -> int:
    """Search, hold against it what is seen later, show."""
    parser = _parser()
    arguments, out = begin(parser)
    if not (arguments.again or arguments.launches or arguments.burn):
        parser.error("nothing to do: use --again, --launches or --burn")
    found = _Findings()
    for _ in range(1 if arguments.plan_db else arguments.searches):
        with Ddlplan.in_own_folder(own_cache=arguments.photos is not None) as ddlplan:
            _hold(ddlplan, arguments, out, found)
    return out.conclude(list(_results(found, arguments)))


def _hold(ddlplan: Ddlplan, arguments: Namespace, out: Output, found: _Findings) -> None:
    """Find a plan, and see what becomes of its claims."""
    data = None
    if ddlplan.cache is not None:
        os.environ["DDLPLAN_CACHE"] = str(ddlplan.cache)  # races find the pictures there too
    if arguments.photos is not None:
        data = link_photos(_CASE, None, ddlplan.folder / "photos", arguments.photos)
    launches = Launches(ddlplan, _CASE, data)
    if arguments.plan_db is None:
        best = launches.tune(arguments.budget, "fp32").data["plan"]
    else:
        launches.copy_database(arguments.plan_db)
        best = launches.best_plan("fp32")
    stored = plans.get(int(best["id"]), db=str(ddlplan.database)).stored
    defaults = [other.plan for other in stored.comparisons if other.name == "defaults"]
    if stored.speedup is None or not defaults or stored.plan == defaults[0]:
        raise BenchError("no plan was faster than PyTorch's defaults in turns: raise --budget")
    say_plan(out, best)
    out.say(f"stored speedup {format_range(stored.speedup)}")
    half = (stored.speedup.high - stored.speedup.low) / 2 / stored.speedup.median
    found.half_widths.append(100 * half)
    node = probe(quick=True)
    cores = node.cpu.usable_cores
    with ForkServerPool() as servers:
        with alone(out):
            runner = make_runner(_CASE, data, node, servers)
        raced = [defaults[0], stored.plan]
        times = max(arguments.again, arguments.launches)
        for number in range(times):
            began_s = time.monotonic()
            if number < arguments.again:
                speedup = _race_again(runner, raced, cores, out)
                found.again.append((speedup, stored.speedup))
            if number < arguments.launches:
                rate = launches.launch(best["id"], _EPOCHS).samples_per_s
                out.say(f"launched: {rate:.1f} samples/s")
                found.launched.append((rate, stored.throughput_samples_per_s))
            if number + 1 < times:
                time.sleep(max(0.0, began_s + arguments.every - time.monotonic()))
        if arguments.burn:
            step_s = _step_s(runner, stored.plan, out)
            pause_s = _SLOWER * step_s / stored.plan.micro_batches
            with alone(out):
                slow = f"{_SLOWED},pause_s={pause_s:.6f}"
                slowed = make_runner(slow, data, node, servers)
            race = partial(_race_three, runner, slowed, stored.plan, defaults[0], cores, out)
            found.burnt.extend(
                alternate(
                    lambda: race(burns=False), lambda: race(burns=True), blocks=arguments.burn
                )
            )


def _race_again(runner: TrialRunner, raced: list[Plan], cores: int, out: Output) -> float:
    """Speedup of a race of the defaults and the stored plan, started afresh."""
    with alone(out):
        results = race_final(runner.start, raced, rounds=_ROUNDS, cores=cores)
    ratio = compare_results(*results)
    assert ratio is not None
    out.say(f"raced again: {format_range(ratio)}")
    return ratio.median


def _step_s(runner: TrialRunner, plan: Plan, out: Output) -> float:
    """Measure the time of a plan's step."""
    with alone(out):
        contender = runner.start(plan)
        try:
            contender.make_steps(3, time_limit_s=_LIMIT_S)
            return median(s.time_s for s in contender.make_steps(9, time_limit_s=_LIMIT_S))
        finally:
            contender.close()


def _race_three(
    runner: TrialRunner,
    slowed: TrialRunner,
    plan: Plan,
    defaults: Plan,
    cores: int,
    out: Output,
    *,
    burns: bool,
) -> _Race:
    """Race a plan with PyTorch's defaults and with itself and a sleep."""
    # Another plan to the race, and the same to a trial.
    marked = replace(plan, lr_scaling="sqrt" if plan.lr_scaling != "sqrt" else "none")

    def start(one: Plan) -> Contender:
        return slowed.start(plan) if one == marked else runner.start(one)

    with alone(out), burning() if burns else nullcontext():
        raced = race_final(start, (defaults, plan, marked), rounds=_ROUNDS, cores=cores)
    speedup, to_slowed = (compare_results(raced[i], raced[1]) for i in (0, 2))
    assert speedup is not None
    assert to_slowed is not None
    out.say(
        f"{'half a core burns' if burns else 'quiet':17}: speedup {format_range(speedup)}, "
        f"over itself with a sleep {format_range(to_slowed)}"
    )
    return _Race(speedup=speedup.median, to_slowed=to_slowed.median)


def _results(found: _Findings, arguments: Namespace) -> Iterator[Result]:
    limit = _HALF_WIDTHS.get(parse_duration_s(arguments.budget))
    yield Result("half width of a stored speedup", fmean(found.half_widths), "%", high=limit)
    for seen, what in ((found.again, "speedup raced again"), (found.launched, "rate launched")):
        if not seen:
            continue
        held = [stored.low <= value <= stored.high for value, stored in seen]
        yield share_result(f"stored interval holds a {what}", held, low=93.0)
        ratios = paired_ratio([(value, stored.median) for value, stored in seen])
        yield Result(f"{what} / stored", ratios)
    if found.burnt:
        yield Result(
            "speedup while half a core burns / on the quiet machine",
            paired_ratio([(burnt.speedup, quiet.speedup) for quiet, burnt in found.burnt]),
            low=0.95,
            high=1.05,
        )
        right = [burnt.to_slowed > 1 for _, burnt in found.burnt]
        yield share_result("order of two plans 5 % apart is right", right, low=95.0)
        yield Result(
            "their ratio on the quiet machine",
            paired_ratio([(quiet.to_slowed, 1.0) for quiet, _ in found.burnt]),
        )


def _parser() -> ArgumentParser:
    parser = make_parser(__doc__, searches=(1, "each held against"))
    add = parser.add_argument
    add("--photos", type=positive, help="train on so many of them (all)")
    add("--budget", default="3m", help="time to tune (3m)")
    add("--again", type=int, default=0, help="races after a search")
    add("--every", type=parse_duration_s, default=0.0, help="from one of them to the next, as 3m")
    add("--launches", type=int, default=0, help="after a search")
    add("--burn", type=int, default=0, help="blocks of four races after a search")
    add("--plan-db", type=Path, help="hold an earlier search's best plan of this database to it")
    return parser


if __name__ == "__main__":
    run_bench(main)
