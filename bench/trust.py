"""Can one bet on what a search claims? Plans that are equal, ratios that are known, later launches.

A short final is what plans with long steps get: one start and two rounds, after a few rounds of
the search with other plans, which have shown the noise.

Machines are imagined, with the noise of `_worlds.py`: a clock is wound in place of waiting, and the
project's own race takes its turns in that time. With ``--real`` one plan races against itself on
this machine.
"""

from __future__ import annotations

import math
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean, median

import numpy as np
from _block import Output, Required, Result, make_parser, positive, run_bench
from _worlds import Noise, RecordedNoise

from launch.plan import Plan
from launch.reports import StepDone
from launch.system.machine_lock import Occupant, timing_alone
from launch.use_cases import make_workload
from launch.workers.fork_server_pool import ForkServerPool
from planner.sweeps.findings import share_interval
from planner.trials.comparison import (
    PairNoise,
    compare_results,
    pair_logs,
)
from planner.trials.contender import StartContender
from planner.trials.drift import drift_deviation, rate_interval
from planner.trials.result import Role, TrialResult
from planner.trials.runner import TrialRunner
from planner.tuning.entrant import Entrant
from planner.tuning.race import Race
from probes.disturbance import Disturbance
from probes.node import probe
from probes.timing import Interval

_PLAN = Plan(strategy="sequential", node_batch=32)
_OTHER = replace(_PLAN, allocator="retain")
"""Stands for another plan: what a plan is makes no difference to an imagined machine."""

_STEP_S = 0.4
_START_S = 2.0
_START_DEVIATION = 0.004
_RATIO = 1.05
_LAUNCH_S = 17.0
_LATER_S = 3600.0
_LOOKS = 24
_FIRST_OF_FINAL = 1000
_SEARCHES, _SHORT_ROUNDS = 3, 2
"""Races of three plans before a short final, and the rounds of each."""

Slowness = Callable[[float, float], float]

NOISES: dict[str, Callable[[int], Slowness]] = {
    "independent steps": lambda seed: Noise(seed, deviation=0.08).factor,
    "autocorrelation 0.5": lambda seed: Noise(seed, deviation=0.08, dependence=0.5).factor,
    "autocorrelation 0.8": lambda seed: Noise(seed, deviation=0.08, dependence=0.8).factor,
    "recorded": lambda seed: RecordedNoise(seed).factor,
}


class Machine:
    """An imagined machine on which a plan takes a known time, and noise comes on top.

    Args:
        seed: Of the noise, and of what each start of a plan makes of its speed.
        noise: Name of the noise.
    """

    def __init__(self, seed: int, noise: str) -> None:
        self.now_s = 0.0
        self._factor = NOISES[noise](seed)
        self._draw = np.random.default_rng((seed, 3))

    def clock(self) -> float:
        """Give the time."""
        return self.now_s

    def start(self, plan: Plan) -> _Running:
        """Start a plan: each start is a little faster or slower than the last."""
        self.now_s += _START_S
        true_s = _STEP_S / (_RATIO if plan == _OTHER else 1.0)
        return _Running(self, true_s * math.exp(_START_DEVIATION * self._draw.normal()))

    def run_step(self, true_s: float) -> float:
        """Make a step; give its time."""
        time_s = true_s * self._factor(self.now_s, true_s)
        self.now_s += time_s
        return time_s


class _Running:
    """A plan on an imagined machine."""

    peak_memory_bytes: int | None = None
    compile_s: float | None = None
    disturbance: Disturbance | None = None

    def __init__(self, machine: Machine, true_s: float) -> None:
        self._machine = machine
        self._true_s = true_s

    def make_steps(self, count: int, *, time_limit_s: float) -> Sequence[StepDone]:
        """Make so many steps."""
        times_s = [self._machine.run_step(self._true_s) for _ in range(count)]
        return [StepDone(step=0, epoch=0, time_s=t, samples=32, loss=1.0) for t in times_s]

    def close(self) -> None:
        """End it."""


def main() -> int:
    """Run the worlds, or a plan against itself; show how often claims held."""
    arguments = _parse()
    out = Output("trust", as_json=arguments.json)
    out.introduce()
    if arguments.real:
        return out.conclude(_race_for_real(arguments, out))
    results = []
    for noise in NOISES:
        worlds = [Machine(seed, noise) for seed in range(arguments.worlds)]
        wrong = [_is_told_apart(world.start, world.clock) for world in worlds]
        results.append(_share(f"{noise}: equal plans told apart", wrong, Required(high=5.0)))
        held, sure, kept = [], [], []
        for seed in range(arguments.worlds):
            world = Machine(seed + 10_000, noise)
            one, other = _final(world.start, world.clock, arguments.rounds)
            ratio = compare_results(one, other)
            assert ratio is not None
            held.append(ratio.low <= _RATIO <= ratio.high)
            sure.append((ratio.high - ratio.low) / 2 / ratio.median)
            world.now_s += _LATER_S
            kept.append(_holds_launch(world, one, [one, other]))
        short = [_short_final(Machine(seed + 20_000, noise)) for seed in range(arguments.worlds)]
        held_short = [ratio.low <= _RATIO <= ratio.high for ratio, _ in short]
        results += [
            _share(f"{noise}: interval of a speedup holds it", held, Required(low=93.0)),
            Result(figure=f"{noise}: its half width", value=100 * fmean(sure), unit="%"),
            _share(f"{noise}: the same of a short final", held_short, Required(low=93.0)),
            Result(
                figure=f"{noise}: its half width",
                value=100 * median((r.high - r.low) / 2 / r.median for r, _ in short),
                unit="%",
            ),
            _share(f"{noise}: interval of a rate holds a launch", kept, Required(low=93.0)),
            _share(
                f"{noise}: the same of a short final", [k for _, k in short], Required(low=93.0)
            ),
        ]
    return out.conclude(results)


def _is_told_apart(start: StartContender, clock: Callable[[], float]) -> bool:
    """Race a plan against itself, as a search does; tell whether one is ever called faster."""
    race, noise = Race(start, clock=clock), PairNoise()
    entrants = [race.enter(_PLAN, Role.SEARCH, time_limit_s=math.inf) for _ in range(2)]
    for count in range(1, _LOOKS + 1):
        race.run_round(entrants)
        logs = pair_logs(*(entrant.result() for entrant in entrants))
        noise.learn("pair", logs)
        if abs(fmean(logs)) > noise.half_width(count):
            return True
    return False


def _final(
    start: StartContender, clock: Callable[[], float], rounds: int, *, starts: int = 2
) -> tuple[TrialResult, TrialResult]:
    """Race two plans that are started afresh, as the final of a search does."""
    race = Race(start, clock=clock, first_round=_FIRST_OF_FINAL)
    entrants: list[Entrant] = [
        race.enter(plan, Role.FINAL, time_limit_s=math.inf) for plan in (_PLAN, _OTHER)
    ]
    for again in range(starts):
        for entrant in entrants if again else ():
            race.restart(entrant, time_limit_s=math.inf)
        for _ in range(rounds):
            race.run_round(entrants)
    for entrant in entrants:
        entrant.close()
    one, two = (entrant.result() for entrant in entrants)
    return one, two


def _short_final(world: Machine) -> tuple[Interval, bool]:
    """Race plans as a short search does, and two of them in a final of one start.

    Returns:
        The ratio of the two, and whether the interval of a rate holds a later launch.
    """
    race = Race(world.start, clock=world.clock)
    searched = []
    for _ in range(_SEARCHES):
        entrants = [
            race.enter(replace(_PLAN, node_batch=batch), Role.SEARCH, time_limit_s=math.inf)
            for batch in (1, 2, 4)
        ]
        for _ in range(_SHORT_ROUNDS):
            race.run_round(entrants)
        for entrant in entrants:
            entrant.close()
        searched += [entrant.result() for entrant in entrants]
    one, other = _final(world.start, world.clock, _SHORT_ROUNDS, starts=1)
    results = [*searched, one, other]
    ratio = compare_results(one, other, noise=PairNoise.of_results(results))
    assert ratio is not None
    world.now_s += _LATER_S
    return ratio, _holds_launch(world, one, results)


def _holds_launch(world: Machine, one: TrialResult, results: Sequence[TrialResult]) -> bool:
    """Tell whether a launch at another time has a rate within the interval that is stored."""
    rate = one.throughput_samples_per_s()
    assert rate is not None
    stored = rate_interval(rate, drift_deviation(results), PairNoise.of_results(results))
    running, times_s = world.start(_PLAN), list[float]()
    while sum(times_s) < _LAUNCH_S:
        times_s += [step.time_s for step in running.make_steps(1, time_limit_s=math.inf)]
    return stored.low <= _PLAN.node_batch * len(times_s) / sum(times_s) <= stored.high


def _race_for_real(arguments: Namespace, out: Output) -> list[Result]:
    """Race one plan against itself on this machine, again and again."""
    wrong, held = [], []
    alone = timing_alone(
        Occupant.of_this_process(), waits=True, on_wait=out.say, on_trouble=out.say
    )
    with alone, ForkServerPool() as servers:
        node = probe(quick=True)
        plan = Plan(
            strategy="threads" if node.cpu.usable_cores > 1 else "sequential",
            node_batch=arguments.batch,
            threads_per_process=node.cpu.usable_cores,
        )
        runner = TrialRunner(make_workload(arguments.use_case), node, servers)
        for number in range(arguments.real):
            one, other = _final(lambda _: runner.start(plan), time.monotonic, arguments.rounds)
            ratio = compare_results(one, other)
            assert ratio is not None
            noise = PairNoise()
            logs = pair_logs(one, other)
            noise.learn("pair", logs)
            wrong.append(abs(fmean(logs)) > noise.half_width(len(logs)))
            held.append(ratio.low <= 1 <= ratio.high)
            out.say(f"{number + 1:3}  {ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f})")
    return [
        _share("equal plans told apart", wrong, Required(high=5.0)),
        _share("interval of the ratio holds 1", held, Required(low=93.0)),
    ]


def _share(figure: str, outcomes: Sequence[bool], required: Required) -> Result:
    """Give a share in percent, with Wilson's 95 % interval."""
    share = share_interval(fmean(outcomes), len(outcomes))
    return Result(figure=figure, value=share.scaled(100), unit="%", required=required)


def _parse() -> Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--worlds", type=positive, default=400, help="imagined machines (400)")
    parser.add_argument("--rounds", type=positive, default=8, help="of each start (8)")
    parser.add_argument("--real", type=int, default=0, help="races on this machine, no worlds")
    parser.add_argument("--use-case", default="simplebig", help="for --real (simplebig)")
    parser.add_argument("--batch", type=positive, default=8, help="for --real (8)")
    return parser.parse_args()


if __name__ == "__main__":
    run_bench(main)
