"""Regret of the plan that a search chooses, and how much sooner ours comes near than others do.

Machines are imagined (`_worlds.py`), and a clock is wound in place of waiting. ``tune`` is the
project's own search, with its races and its final. The others are samplers alone, which get the
same trials on the same machines: start, first step, and steps until a few seconds have passed.
*Regret* is by how much the true time of the chosen plan is above that of the best one on offer.
"""

from __future__ import annotations

import math
import os
import warnings
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Protocol

os.environ.setdefault("OMP_NUM_THREADS", "1")  # matrices are small, and worlds run side by side

import numpy as np
import optuna
from _block import Output, Result, begin, make_parser, percentile, run_bench
from _imagined_tuning import tune
from _worlds import MACHINES, Machine, Noise, RecordedNoise, World
from optuna.trial import TrialState

from launch.errors import InvalidPlanError
from launch.plan import Plan
from launch.strategies import strategy_names
from planner.search.plan_search import PlanSearch, Proposal
from planner.search.space import PlanSpace
from planner.trials.result import Outcome, Role, TrialResult
from planner.tuning.subject import defaults_plan
from probes.timing import Measurement

_STEPS_S, _MOST_STEPS, _FEWEST = 4.0, 8, 3
_CLEARLY = 1.3
_MARKS = (60, 120, 180, 300, 600)

Disturbance = Callable[[float, float], float]

NOISES: dict[str, Callable[[int], Disturbance]] = {
    "independent": lambda seed: Noise(seed).factor,
    "dependent": lambda seed: Noise(seed, dependence=0.6).factor,
    "recorded": lambda seed: RecordedNoise(seed).factor,
}

REQUIRED = {
    (180, "independent"): (0.015, 0.04),
    (180, "dependent"): (0.015, 0.04),
    (600, "independent"): (0.007, 0.02),
    (600, "dependent"): (0.007, 0.02),
    (180, "recorded"): (0.03, 0.07),
    (600, "recorded"): (0.015, 0.04),
}
"""Median and 90th percentile of the regret that the search must keep to, by seconds and noise."""


class Searcher(Protocol):
    """Proposes plans and says which one it would choose."""

    def propose(self) -> Plan | None:
        """Give the next plan, ``None`` where there is none."""

    def tell(self, result: TrialResult) -> None:
        """Take the result of the plan that was proposed."""

    def best(self) -> Plan | None:
        """Give the plan that would be chosen now."""


class Ours:
    """The project's own search."""

    def __init__(self, world: World, baseline: TrialResult, seed: int) -> None:
        self._search = PlanSearch(
            strategy_names(), world.case, world.node, history=[baseline], seed=seed
        )
        self._proposal: Proposal | None = None

    def propose(self) -> Plan | None:
        self._proposal = self._search.propose()
        return None if self._proposal is None else self._proposal.plan

    def tell(self, result: TrialResult) -> None:
        assert self._proposal is not None
        self._search.tell(self._proposal, result)

    def best(self) -> Plan | None:
        return next(iter(self._search.rank_tried()), None)


class Optunas:
    """One of Optuna's samplers on the same space, with the fastest time measured as its choice."""

    def __init__(
        self, world: World, baseline: TrialResult, sampler: optuna.samplers.BaseSampler
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space = PlanSpace(strategy_names(), world.case, world.node)
        self._study = optuna.create_study(sampler=sampler)
        self._trial: optuna.Trial | None = None
        self._best: tuple[float, Plan] | None = None
        self._note(baseline)

    def propose(self) -> Plan | None:
        for _ in range(1000):
            self._trial = self._study.ask()
            try:
                return self._space.draw(self._trial)
            except InvalidPlanError:
                self._study.tell(self._trial, state=TrialState.FAIL)
        return None

    def tell(self, result: TrialResult) -> None:
        assert self._trial is not None
        rate = result.throughput_samples_per_s()
        if rate is None:
            self._study.tell(self._trial, state=TrialState.FAIL)
        else:
            self._study.tell(self._trial, 1 / rate.median)
            self._note(result)

    def best(self) -> Plan | None:
        return None if self._best is None else self._best[1]

    def _note(self, result: TrialResult) -> None:
        rate = result.throughput_samples_per_s()
        if result.outcome is Outcome.OK and rate is not None:
            time_s = 1 / rate.median
            if self._best is None or time_s < self._best[0]:
                self._best = time_s, result.plan


def make_searcher(name: str, world: World, baseline: TrialResult, seed: int) -> Searcher:
    """Make a searcher by its name."""
    if name == "ours":
        return Ours(world, baseline, seed)
    samplers: dict[str, Callable[[], optuna.samplers.BaseSampler]] = {
        "tpe": lambda: optuna.samplers.TPESampler(multivariate=True, group=True, seed=seed),
        "gp": lambda: optuna.samplers.GPSampler(seed=seed),
        "random": lambda: optuna.samplers.RandomSampler(seed=seed),
    }
    return Optunas(world, baseline, samplers[name]())


class Trials:
    """Runs plans on an imagined machine, by a clock that they wind.

    Args:
        world: The machine.
        disturbance: Gives the factor of a step's time.
        budget_s: After which nothing runs any more.
    """

    def __init__(self, world: World, disturbance: Disturbance, budget_s: float) -> None:
        self.now_s = 0.0
        self._world, self._disturbance, self._budget_s = world, disturbance, budget_s
        self._best_s = math.inf

    def run(self, plan: Plan, role: Role = Role.SEARCH) -> TrialResult:
        """Run a plan until it is known, has clearly lost, or the time is up."""
        started_s = self.now_s
        self.now_s += self._world.start_s(plan)
        peak = self._world.peak_bytes(plan) if "cpu" in plan.devices else None
        compile_s: float | None = None
        measurement: Measurement | None = None
        outcome = Outcome.OUT_OF_MEMORY
        if (peak or 0) <= self._world.node.memory.usable_bytes:
            compile_s = self._world.compile_s if plan.compile else None
            self.now_s += compile_s or 0.0
            outcome, times = self._make_steps(plan)
            if times:
                first, more = times[:1], times[1:]
                measurement = Measurement(warmup_s=first if more else (), samples_s=more or first)
        result = TrialResult(
            plan=plan,
            role=role,
            outcome=outcome,
            measurement=measurement,
            peak_memory_bytes=peak,
            compile_s=compile_s,
            elapsed_s=self.now_s - started_s,
        )
        rate = result.throughput_samples_per_s()
        if rate is not None:
            self._best_s = min(self._best_s, 1 / rate.median)
        return result

    def _make_steps(self, plan: Plan) -> tuple[Outcome, tuple[float, ...]]:
        times: list[float] = []
        step_s = self._world.sample_s(plan) * plan.node_batch
        while len(times) < 1 + _FEWEST or (
            len(times) < 1 + _MOST_STEPS and sum(times[1:]) < _STEPS_S
        ):
            if self.now_s >= self._budget_s:
                return Outcome.OK if len(times) > 1 else Outcome.TIME_LIMIT, tuple(times)
            times.append(step_s * self._disturbance(self.now_s, step_s))
            self.now_s += times[-1]
            known_s = min(times[1:], default=0.0) / plan.node_batch
            if len(times) == 3 and known_s > _CLEARLY * self._best_s:
                return Outcome.SLOWER, tuple(times)
        return Outcome.OK, tuple(times)


@dataclass(frozen=True, slots=True)
class Curve:
    """True time of the plan that a search would choose, over its seconds."""

    points: tuple[tuple[float, float], ...]
    trials: int

    tried_s: float
    """That of the best plan that was tried."""

    claim: tuple[float, bool] | None = None
    """Half width of the claimed speedup in percent, and whether the true one lies within."""

    def at(self, second: float) -> float:
        """Give the time of the plan that would be chosen then."""
        return [time_s for moment_s, time_s in self.points if moment_s <= second][-1]

    def first_below(self, time_s: float) -> float:
        """Give the second from which the choice stays below a time; infinite where it does not."""
        above = [i for i, (_, chosen_s) in enumerate(self.points) if chosen_s > time_s]
        after = above[-1] + 1 if above else 0
        return self.points[after][0] if after < len(self.points) else math.inf


def search(name: str, world: World, disturbance: Disturbance, seed: int, budget_s: float) -> Curve:
    """Let one searcher search one world."""
    if name == "tune":
        return _tune(world, disturbance, seed, budget_s)
    trials = Trials(world, disturbance, budget_s)
    baseline = Plan(strategy="sequential", node_batch=world.case.default_batch)
    result = trials.run(baseline, Role.BASELINE)
    searcher = make_searcher(name, world, result, seed)
    points = [(0.0, world.sample_s(baseline)), (trials.now_s, world.sample_s(baseline))]
    done, tried_s = 1, world.sample_s(baseline)
    while trials.now_s < budget_s and (plan := searcher.propose()) is not None:
        searcher.tell(trials.run(plan))
        done, tried_s = done + 1, min(tried_s, world.sample_s(plan))
        chosen = searcher.best()
        if chosen is not None:
            points.append((trials.now_s, world.sample_s(chosen)))
    return Curve(tuple(points), done, tried_s)


def _tune(world: World, disturbance: Disturbance, seed: int, budget_s: float) -> Curve:
    """Let the project's own search, with its races and its final, search one world."""
    found = tune(world, disturbance, seed, budget_s)
    defaults_s = world.sample_s(defaults_plan(world.case, world.node))
    tried_s = min(map(world.sample_s, found.tried), default=defaults_s)
    points = ((0.0, defaults_s), (min(found.ended_s, budget_s), world.sample_s(found.chosen)))
    claim = None
    if (claimed := found.speedup) is not None:
        half = 50 * (claimed.high - claimed.low) / claimed.median
        claim = half, claimed.low <= defaults_s / world.sample_s(found.chosen) <= claimed.high
    return Curve(points, len(set(map(repr, found.tried))), tried_s, claim)


def find_optimum(world: World, time_s: Callable[[Plan], float], starts: int = 12) -> Plan:
    """Give the plan of least time: from many starts, change what gains most."""
    space = PlanSpace(strategy_names(), world.case, world.node)
    generator = np.random.default_rng(0)
    drawn = [*space.guesses, *(space.draw_randomly(generator) for _ in range(starts))]
    found = []
    for start in drawn:
        if start is None:
            continue
        here, here_s = start, time_s(start.plan)
        while True:
            nearby = [
                (time_s(other.plan), repr(other.plan), other)
                for other in space.neighbours(here)
                if "cpu" not in other.plan.devices
                or world.peak_bytes(other.plan) <= world.node.memory.usable_bytes
            ]
            if not nearby or min(nearby)[0] >= here_s:
                break
            here_s, _, here = min(nearby)
        found.append((here_s, repr(here.plan), here.plan))
    return min(found)[2]


def main() -> int:
    """Measure and show."""
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    parser = make_parser(
        __doc__,
        worlds=(10, "of each machine"),
        seeds=(2, "searches in each world"),
        budget=(180, "seconds of a search"),
    )
    add = parser.add_argument
    add("--samplers", default="tune,ours,tpe,random", help="also gp, which needs scipy")
    add("--noises", default="independent,dependent,recorded", help="of steps (all)")
    add("--machines", default="0,1,2,3", help="numbers of the kinds (0,1,2,3)")
    arguments, out = begin(parser)
    results: list[Result] = []
    for number in map(int, arguments.machines.split(",")):
        results += _on_machine(MACHINES[number], arguments, out)
    return out.conclude(results)


def _on_machine(machine: Machine, arguments: Namespace, out: Output) -> list[Result]:
    budget_s, seeds = int(arguments.budget), range(arguments.seeds)
    worlds = [World(machine, seed, budget_s=budget_s) for seed in range(arguments.worlds)]
    best_s = [world.sample_s(find_optimum(world, world.sample_s)) for world in worlds]
    foreseen = [
        world.sample_s(find_optimum(world, world.foreseeable_s)) / time_s - 1
        for world, time_s in zip(worlds, best_s, strict=True)
    ]
    out.say(
        f"{machine.name}: who knows all but each plan's own deviation is"
        f" {100 * median(foreseen):.1f} {100 * percentile(foreseen, 0.9):.1f} % behind the best"
    )
    results = []
    for noise in arguments.noises.split(","):
        curves = {
            name: [
                (i, search(name, world, NOISES[noise](100 * i + seed), seed, budget_s))
                for i, world in enumerate(worlds)
                for seed in seeds
            ]
            for name in arguments.samplers.split(",")
        }
        for every in curves.values():  # climbing may have missed what a search has found
            for i, curve in every:
                best_s[i] = min(best_s[i], *(time_s for _, time_s in curve.points))
        soonest_s = {}
        for name, every in curves.items():
            figure = f"{machine.name}, {noise}, {name}"
            regrets = {
                mark: [curve.at(mark) / best_s[i] - 1 for i, curve in every]
                for mark in sorted({*(m for m in _MARKS if m < budget_s), budget_s})
            }
            soonest_s[name] = median(curve.first_below(1.02 * best_s[i]) for i, curve in every)
            marks = "  ".join(
                f"{mark} s: {100 * median(found):.1f} {100 * percentile(found, 0.9):.1f}"
                for mark, found in regrets.items()
            )
            trials = median(curve.trials for _, curve in every)
            out.say(f"{figure}: {marks} %; 2 % at {soonest_s[name]:.0f} s; {trials:.0f} trials")
            untried = [100 * (curve.tried_s / best_s[i] - 1) for i, curve in every]
            misjudged = [100 * (curve.points[-1][1] / curve.tried_s - 1) for _, curve in every]
            out.say(
                f"{figure}: of it never tried {median(untried):.1f} {percentile(untried, 0.9):.1f},"
                f" misjudged {median(misjudged):.1f} {percentile(misjudged, 0.9):.1f} %"
            )
            if claims := [curve.claim for _, curve in every if curve.claim]:
                halves, held = zip(*claims, strict=True)
                half, wide = median(halves), percentile(halves, 0.9)
                out.say(
                    f"{figure}: speedups claimed to {half:.1f} {wide:.1f} %,"
                    f" {100 * fmean(held):.0f} % of {len(held)} hold"
                )
            if name in ("ours", "tune"):
                results += _judge(figure, budget_s, noise, regrets[budget_s])
        for rival, times in (("tpe", 4), ("random", 8)):
            if rival in soonest_s and "ours" in soonest_s:
                sooner = min(soonest_s[rival], budget_s) / soonest_s["ours"]  # no later is known
                figure = f"{machine.name}, {noise}, 2 % sooner than {rival} (at least)"
                results.append(Result(figure, sooner, "times", low=times))
    return results


def _judge(figure: str, budget_s: int, noise: str, regrets: Sequence[float]) -> list[Result]:
    limits = REQUIRED.get((budget_s, noise))
    shares = ((0.5, "median"), (0.9, "90th percentile"))
    return [
        Result(
            f"{figure}, {budget_s} s, {what} of the regret",
            100 * percentile(regrets, share),
            "%",
            high=None if limits is None else 100 * limits[share > 0.5],
        )
        for share, what in shares
    ]


if __name__ == "__main__":
    run_bench(main)
