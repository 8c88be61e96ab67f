"""Search: Optuna's study proposes plans, trials measure them.

The search decides and runs nothing: whoever drives it hands each result back, and a recorded
result is as good as a fresh one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import optuna
from optuna.distributions import CategoricalDistribution
from optuna.trial import TrialState

from launch.case_facts import CaseFacts
from launch.plan import Plan, Setting
from planner.search.effects import ObservedTime
from planner.search.failures import FailureCounts
from planner.search.likeness import SimilarTrials
from planner.search.memory import MemoryModel
from planner.search.sampler import PLAN, SO_FAR, WEIGHT, PlanSampler
from planner.search.space import STRATEGIES, PlanSources, PlanSpace
from planner.trials.result import TrialResult
from probes import codec
from probes.hardware import Hardware

WORTHWHILE_GAIN = 0.01
"""Part of the time below which a gain is not worth a trial: trials do not tell less apart."""

_STEPS = 4
"""Steps of a trial, first ones included."""

_START_S, _COMPILE_S, _MOST_S = 5.0, 20.0, 120.0
"""Time to start a trial, to compile its plan and of a whole trial at most, before any is known."""

_MOST_OF_A_STUDY = 12.0
"""Trials that another study counts as at most, before its likeness."""

_FULL_COUNT = 5
"""Timed steps from which a trial counts fully."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan to try, and what was drawn to make it."""

    plan: Plan
    parameters: Mapping[str, Setting]
    _trial: optuna.Trial


class PlanSearch:
    """Proposes plans of several strategies, from what earlier ones showed.

    What is learned and what is chosen, `planner.search.sampler.PlanSampler` says. Several proposals
    may be open at once: a later one takes those before it into account.

    Args:
        sources: Names of the strategies that may be used, or what plans are drawn from.
        case: What is trained.
        node: Where.
        history: Earlier trials; any order.
        similar: Trials of machines and use cases that are alike.
        seed: Of the sampler.
        training_samples: Samples of the training over which a plan's compile time is charged.
        allows: Tells which plans may be proposed.
        only: Parameters of the only plans that may be proposed; ``None``: all.
        worth: Gives by what the times of samples are divided in a batch of so many, where another
            thing than throughput is searched for.
        least_batch: Plans with a smaller one are tried only for what they show of others.

    Raises:
        InfeasiblePlanError: None of the strategies can run here; the reasons are in the message.
        UnknownStrategyError: There is no strategy of one of the names.
    """

    def __init__(
        self,
        sources: PlanSources,
        case: CaseFacts,
        node: Hardware,
        *,
        history: Sequence[TrialResult] = (),
        similar: Sequence[SimilarTrials] = (),
        seed: int = 0,
        training_samples: float = math.inf,
        allows: Callable[[Plan], bool] = lambda _: True,
        only: Sequence[Mapping[str, Setting]] | None = None,
        worth: Callable[[int], float] = lambda _: 1.0,
        least_batch: int = 1,
    ) -> None:
        self._worth = worth
        self._over_samples = training_samples
        self._allows = allows
        self._space = PlanSpace(sources, case, node, only)
        self._memory = MemoryModel(case, node)
        self._failures = FailureCounts()
        self._starts_s: list[float] = []
        self._compiles_s: list[float] = []
        self._has_times = False
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._similar = {study.study_id: study for study in similar}
        self._sampler = PlanSampler(
            self._space,
            earlier=_observe(similar, training_samples),
            seed=seed,
            trial_s=self._trial_s,
            chance=self._chance,
            worth=worth,
            least_batch=least_batch,
        )
        self._study = optuna.create_study(sampler=self._sampler)
        for result in history:
            self.learn(result)

    def propose(self, fits: Callable[[Plan], bool] = lambda _: True) -> Proposal | None:
        """Give the next plan to try, ``None`` when nothing new is left to draw.

        Args:
            fits: Tells whether a plan's trial fits into the time that is left.
        """
        if self._sampler.choose_anew(self._study, fits).drawn is None:
            return None
        trial = self._study.ask()
        plan = self._space.draw(trial)
        return Proposal(plan, {**trial.params, STRATEGIES: ",".join(self._space.strategies)}, trial)

    def tell(self, proposal: Proposal, result: TrialResult) -> None:
        """Learn what a proposed plan showed."""
        time_s = time_per_sample_s(result, self._over_samples)
        self._learn(result, time_s)
        if time_s is None:
            self._study.tell(proposal._trial, state=TrialState.FAIL)
        else:
            proposal._trial.set_user_attr(WEIGHT, _weight(result))
            self._study.tell(proposal._trial, time_s)

    def withdraw(self, proposal: Proposal) -> None:
        """Give up a proposed plan that was not tried; it may be proposed again."""
        self._study.tell(proposal._trial, state=TrialState.PRUNED)

    def learn(self, result: TrialResult) -> None:
        """Take in a trial that was not proposed here, with what would be drawn for its plan."""
        time_s = time_per_sample_s(result, self._over_samples)
        self._learn(result, time_s)
        drawn = self._space.find_plan(result.plan, result.parameters)
        attributes = {PLAN: codec.to_builtins(result.plan), WEIGHT: _weight(result)}
        self._study.add_trial(
            optuna.trial.create_trial(
                state=TrialState.FAIL if time_s is None else TrialState.COMPLETE,
                value=time_s,
                params={} if drawn is None else dict(drawn.parameters),
                distributions={}
                if drawn is None
                else {name: CategoricalDistribution(one) for name, one in drawn.choices.items()},
                user_attrs=attributes,
            )
        )

    def learn_similar(self, similar: Sequence[SimilarTrials]) -> None:
        """Take in more trials of machines and use cases that are alike."""
        for study in similar:
            known = self._similar.get(study.study_id)
            results = () if known is None else known.results
            merged = replace(known or study, results=(*results, *study.results))
            self._similar[study.study_id] = merged
        self._sampler.set_earlier(_observe(list(self._similar.values()), self._over_samples))

    def note(self, proposal: Proposal, result: TrialResult) -> None:
        """Learn what a proposed plan that still runs has shown until now; `tell` ends it."""
        time_s = time_per_sample_s(result, self._over_samples)
        if time_s is not None:
            self._has_times = True
            proposal._trial.set_user_attr(WEIGHT, _weight(result))
            proposal._trial.set_user_attr(SO_FAR, time_s)

    def expected_gain(self) -> float:
        """Give what the best untried plan is expected to gain, as a part of the time per sample.

        Below `WORTHWHILE_GAIN` a search may end: what it would still find, trials cannot show.
        """
        return self._sampler.choose_anew(self._study).gain

    def expected_fastest(self, fits: Callable[[Plan], bool]) -> Plan | None:
        """Give the untried plan that is expected to be faster than all that were tried, if any is.

        Args:
            fits: Tells which plans there is time for.
        """
        found = self._sampler.choose_anew(self._study, fits)
        return found.fastest if found.lead >= WORTHWHILE_GAIN else None

    def rank_tried(self) -> list[Plan]:
        """Give the plans that were tried, the fastest by all trials together first.

        One whose batch is too small to be chosen stands here with the least that may be.
        """
        return self._sampler.rank_tried(self._study)

    def _learn(self, result: TrialResult, time_s: float | None) -> None:
        self._memory.learn([result])
        self._failures.add(result)
        if time_s is not None:
            self._has_times = True
        if result.compile_s is not None:
            self._compiles_s.append(result.compile_s)
        elif result.measurement is not None and result.outcome.has_times:
            # What failed after some steps may have waited for its time limit.
            stepping_s = result.measurement.total_s * self._worth(result.plan.node_batch)
            self._starts_s.append(max(0.0, result.elapsed_s - stepping_s))

    def _chance(self, plan: Plan) -> float:
        """Give the chance that a plan works, 0 where it must not be tried."""
        if not self._allows(plan) or not self._memory.may_fit(plan):
            return 0.0
        return self._failures.chance(plan)

    def _trial_s(self, plan: Plan, time_s: float) -> float:
        """Give the time of a plan's trial; before any trial, the same for all."""
        if not self._has_times:
            return 1.0
        start_s = fmean(self._starts_s) if self._starts_s else _START_S
        compile_s = fmean(self._compiles_s) if self._compiles_s else _COMPILE_S
        batch = plan.node_batch
        stepping_s = min(_STEPS * time_s * self._worth(batch) * batch, _MOST_S)
        return start_s + stepping_s + (compile_s if plan.compile else 0.0)


def time_per_sample_s(result: TrialResult, training_samples: float = math.inf) -> float | None:
    """Give what the search minimises, ``None`` where the trial shows no speed.

    Args:
        result: What a trial showed.
        training_samples: Samples of the training over which its compile time is charged.
    """
    throughput = result.throughput_samples_per_s(training_samples)
    return None if throughput is None else 1 / throughput.median


def _observe(similar: Sequence[SimilarTrials], training_samples: float) -> list[ObservedTime]:
    """Give the times that trials of other studies showed, each with its weight."""
    observed = []
    for study in similar:
        known = [(r.plan, time_per_sample_s(r, training_samples)) for r in study.results]
        timed = [(plan, time_s) for plan, time_s in known if time_s is not None]
        weight = study.likeness * min(1.0, _MOST_OF_A_STUDY / max(len(timed), 1))
        observed += [
            ObservedTime.of(plan, time_s, weight=weight, study=f"of study {study.study_id}")
            for plan, time_s in timed
        ]
    return observed


def _weight(result: TrialResult) -> float:
    """Give the part of a whole trial that a result counts as: few steps show less."""
    count = 0 if result.measurement is None else len(result.measurement.samples_s)
    return min(max(count, 1) / _FULL_COUNT, 1.0)
