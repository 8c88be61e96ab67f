"""Claims of searches held against what is known: equal plans, known ratios, later launches.

A short final is what plans with long steps get: one start and two rounds, after a few rounds of
the search with other plans, which have shown the noise.

Machines are imagined, with the noise of `_worlds.py`: a clock is wound in place of waiting, and the
project's own race takes its turns in that time. With ``--real`` one plan races against itself on
this machine; it was not chosen for being fast, so no luck of a search is in its times. With
``--starts`` one plan is started so many times here, and its starts take turns.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, median

import numpy as np
from _block import BenchError, Output, Result, begin, make_parser, run_bench
from _races import alone, make_runner, race_final, read_plan, share_result
from _worlds import Noise, RecordedNoise
from numpy.typing import NDArray

from launch.plan import Plan
from launch.reports import StepDone
from launch.workers.fork_server_pool import ForkServerPool
from planner.trials.comparison import (
    START_DEVIATION,
    PairNoise,
    compare_results,
    pair_logs,
)
from planner.trials.contender import StartContender
from planner.trials.drift import drift_deviation, rate_interval
from planner.trials.result import Role, TrialResult
from planner.tuning.race import Race
from probes.disturbance import Disturbance
from probes.node import probe
from probes.timing import Interval

_PLAN = Plan(strategy="sequential", node_batch=32)
_OTHER = replace(_PLAN, allocator="retain")
"""Stands for another plan: what a plan is makes no difference to an imagined machine."""

_REAL_BATCH = 8
_STEP_S = 0.4
_START_S = 2.0
_RATIO = 1.05
_LAUNCH_S = 17.0
_LATER_S = 3600.0
_LOOKS = 24
_DRAWS = 200_000
_SEARCHES, _SHORT_ROUNDS = 3, 2
"""Races of three plans before a short final, and the rounds of each."""

Slowness = Callable[[float, float], float]
Times = NDArray[np.float64]

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
        return _Running(self, plan, true_s * math.exp(START_DEVIATION * self._draw.normal()))

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

    def __init__(self, machine: Machine, plan: Plan, true_s: float) -> None:
        self._machine, self._batch = machine, plan.node_batch
        self._true_s = true_s

    def make_steps(self, count: int, *, time_limit_s: float) -> Sequence[StepDone]:
        """Make so many steps."""
        times_s = [self._machine.run_step(self._true_s) for _ in range(count)]
        return [StepDone(step=0, epoch=0, time_s=t, samples=self._batch, loss=1.0) for t in times_s]

    def close(self) -> None:
        """End it."""


def main() -> int:
    """Run the worlds, or a plan against itself; show how often claims held."""
    parser = make_parser(
        __doc__,
        worlds=(400, "imagined machines"),
        rounds=(8, "of each start"),
        at_once=(5, "starts side by side"),
    )
    parser.add_argument("--real", type=int, default=0, help="races on this machine, no worlds")
    parser.add_argument("--starts", type=int, default=0, help="of one plan here, no worlds")
    parser.add_argument("--use-case", default="simplebig", help="of real races (simplebig)")
    parser.add_argument("--data", type=Path, help="its data")
    parser.add_argument("--plan", type=Path, help="race what `plans export` wrote here")
    arguments, out = begin(parser)
    if arguments.real:
        return out.conclude(_race_for_real(arguments, out))
    if arguments.starts:
        return out.conclude(_compare_starts(arguments, out))
    results = []
    for noise in NOISES:
        worlds = [Machine(seed, noise) for seed in range(arguments.worlds)]
        wrong = [_is_told_apart(world.start, world.clock) for world in worlds]
        results.append(share_result(f"{noise}: equal plans told apart", wrong, high=5.0))
        held, sure, kept = [], [], []
        for seed in range(arguments.worlds):
            world = Machine(seed + 10_000, noise)
            one, other = race_final(
                world.start, (_PLAN, _OTHER), rounds=arguments.rounds, cores=1, clock=world.clock
            )
            ratio = compare_results(one, other)
            assert ratio is not None
            held.append(ratio.low <= _RATIO <= ratio.high)
            sure.append((ratio.high - ratio.low) / 2 / ratio.median)
            world.now_s += _LATER_S
            kept.append(_holds_launch(world, one, [one, other]))
        short = [_short_final(Machine(seed + 20_000, noise)) for seed in range(arguments.worlds)]
        held_short = [ratio.low <= _RATIO <= ratio.high for ratio, _ in short]
        results += [
            share_result(f"{noise}: interval of a speedup holds it", held, low=93.0),
            Result(f"{noise}: its half width", 100 * fmean(sure), "%"),
            share_result(f"{noise}: the same of a short final", held_short, low=93.0),
            Result(
                f"{noise}: its half width",
                100 * median((r.high - r.low) / 2 / r.median for r, _ in short),
                "%",
            ),
            share_result(f"{noise}: interval of a rate holds a launch", kept, low=93.0),
            share_result(f"{noise}: the same of a short final", [k for _, k in short], low=93.0),
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
        if abs(median(logs)) > noise.half_width(count):
            return True
    return False


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
    one, other = race_final(
        world.start, (_PLAN, _OTHER), rounds=_SHORT_ROUNDS, cores=1, starts=1, clock=world.clock
    )
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


@contextmanager
def _real_race(
    arguments: Namespace, out: Output
) -> Iterator[tuple[Plan, Callable[..., list[TrialResult]]]]:
    """Give the plan to race on this machine, and what races plans as a final does."""
    with alone(out), ForkServerPool() as servers:
        node = probe(quick=True)
        start = make_runner(arguments.use_case, arguments.data, node, servers).start
        race = partial(race_final, start, rounds=arguments.rounds, cores=node.cpu.usable_cores)
        yield read_plan(arguments.plan, node, _REAL_BATCH), race


def _race_for_real(arguments: Namespace, out: Output) -> list[Result]:
    """Race one plan against itself on this machine, again and again."""
    wrong, held = [], []
    with _real_race(arguments, out) as (plan, race):
        for number in range(arguments.real):
            one, other = race([plan] * 2)
            ratio = compare_results(one, other)
            assert ratio is not None
            noise = PairNoise()
            logs = pair_logs(one, other)
            noise.learn("pair", logs)
            wrong.append(abs(median(logs)) > noise.half_width(len(logs)))
            held.append(ratio.low <= 1 <= ratio.high)
            out.say(f"{number + 1:3}  {ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f})")
    return [
        share_result("equal plans told apart", wrong, high=5.0),
        share_result("interval of the ratio holds 1", held, low=93.0),
    ]


def _compare_starts(arguments: Namespace, out: Output) -> list[Result]:
    """Start one plan again and again on this machine, some side by side; show how they differ."""
    sizes = [len(part) for part in np.array_split(range(arguments.starts), _parts(arguments))]
    groups = []
    with _real_race(arguments, out) as (plan, race):
        for count in sizes:
            groups.append(logs := _times_of_starts(race([plan] * count, starts=1)))
            means = logs.mean(axis=1) - logs.mean()
            out.say("  ".join(f"{100 * math.expm1(mean):+.2f} %" for mean in means))
    return [
        Result(
            "standard deviation of a plan's speed between starts, assumed is the limit",
            _deviation_of_starts(groups).scaled(100),
            "%",
            high=100 * START_DEVIATION,
        )
    ]


def _times_of_starts(results: Sequence[TrialResult]) -> Times:
    """Give the logarithms of turns: a row for each start, a column for each round.

    Args:
        results: Of a race of one plan with itself, started once in each.

    Raises:
        BenchError: They did not fit into memory at once, so that each turn was a start.
    """
    measured = [result.measurement for result in results if result.measurement]
    if any(one.starts > 1 for one in measured):
        raise BenchError(f"{len(results)} starts need too much memory: use fewer --at-once")
    return np.log([one.samples_s for one in measured])


def _deviation_of_starts(groups: Sequence[Times]) -> Interval:
    """Give the standard deviation between starts, with its 95 % interval.

    The variance of turns is that between rounds, which the starts of a group share, that between
    starts, and the rest: ``MS_starts`` is of ``rest + rounds * between`` and ``MS_rest`` of
    ``rest`` (analysis of variance in two ways without repetition). The interval holds the middle
    95 % of what the two leave possible of ``between``. Source: Weerahandi, "Generalized confidence
    intervals", 1993. Turns of a start that are alike for another reason, such as noise that lasts
    longer than a round, count as between starts: it is an upper estimate.
    """
    squares, degrees = np.zeros(2), np.zeros(2)
    rounds = groups[0].shape[1]
    for logs in groups:
        starts = logs.mean(axis=1, keepdims=True)
        rest = logs - starts - logs.mean(axis=0, keepdims=True) + logs.mean()
        squares += rounds * np.sum((starts - logs.mean()) ** 2), np.sum(rest**2)
        degrees += len(logs) - 1, (len(logs) - 1) * (rounds - 1)
    between, rest = squares / degrees
    draw = np.random.default_rng(0)
    possible = [squares[i] / draw.chisquare(degrees[i], _DRAWS) for i in range(2)]
    low, high = np.quantile((possible[0] - possible[1]) / rounds, (0.025, 0.975))
    found = [math.sqrt(max(0.0, float(v))) for v in ((between - rest) / rounds, low, high)]
    return Interval(median=found[0], low=found[1], high=found[2], count=sum(map(len, groups)))


def _parts(arguments: Namespace) -> int:
    """Give the number of groups that start side by side."""
    if min(arguments.starts, arguments.at_once, arguments.rounds) < 2:
        raise BenchError("--starts, --at-once, --rounds: two starts of two rounds are the least")
    groups = math.ceil(arguments.starts / arguments.at_once)
    return int(min(groups, arguments.starts // 2))


if __name__ == "__main__":
    run_bench(main)
