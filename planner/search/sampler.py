"""Sampler: chooses the next plan of an Optuna study, by what is learned from its trials.

Next is the plan that promises most improvement per second of its trial: the expected improvement
over the best plan known (Jones, Schonlau and Welch, "Efficient global optimization", 1998), times
the chance that it works, over the time that its trial takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, TrialState

from launch.plan import Plan
from planner.search.effects import Effects, ObservedTime, TermColumns
from planner.search.plan_pool import PlanPool, expected_improvement
from planner.search.prior import Prior
from planner.search.space import DrawnPlan, PlanSpace
from planner.search.terms import kind_of, terms_of
from probes import codec

PLAN = "plan"
"""Attribute of a trial of the study: its plan, where it was not drawn here."""

WEIGHT = "weight"
"""Attribute of a trial: how many whole trials its time counts for, 1 where it is missing."""

SO_FAR = "so_far_s"
"""Attribute of a trial that still runs: the time per sample that it has shown until now."""

_ROUNDS, _BEAM, _RANDOM = 5, 6, 6
"""Rounds of changing one setting of the most promising plans, how many of them, and how many plans
are drawn at random to begin with beside guesses and the best so far."""

_BEST_KEPT = 4
_LOOKS = 12
"""Plans for which the best batch of a trial is looked for."""

_LEAST_DEVIATION = 1e-6


@dataclass(frozen=True, slots=True)
class NextPlan:
    """What is to be tried next, and what any untried plan is expected to bring."""

    drawn: DrawnPlan | None
    gain: float = 0.0
    """The largest expected improvement, as a part of the time."""

    fastest: Plan | None = None
    """The untried plan that is expected to be the fastest."""

    lead: float = 0.0
    """By which part of the time it is expected to be ahead of the best plan that was tried."""


class PlanSampler(optuna.samplers.BaseSampler):
    """Draws whole plans, as Optuna's relative sampling does.

    Args:
        space: The plans that there are.
        earlier: Trials of other studies.
        seed: For the plans that are drawn at random.
        trial_s: Gives the time of a plan's trial from its time per sample, in seconds.
        chance: Gives the chance that a plan works, 0 where it must not be tried.
        worth: Gives by what the times of samples are divided in a batch of so many.
        least_batch: Plans with a smaller one may be tried, but are not what is searched for: they
            show in less time what the plan with a larger one would do.
    """

    def __init__(
        self,
        space: PlanSpace,
        *,
        earlier: Sequence[ObservedTime] = (),
        seed: int = 0,
        trial_s: Callable[[Plan, float], float] = lambda _plan, _time_s: 1.0,
        chance: Callable[[Plan], float] = lambda _: 1.0,
        worth: Callable[[int], float] = lambda _: 1.0,
        least_batch: int = 1,
    ) -> None:
        self._space = space
        self._least_batch = least_batch
        self._has_looks = space.case.look_batch is not None
        self._earlier = list(earlier)
        self._trial_s = trial_s
        self._chance = chance
        self._generator = np.random.default_rng(seed)
        guessed = {name for guess in space.guesses for name in terms_of(guess.plan).sizes}
        prior = Prior(space.case, space.node, frozenset(guessed))
        self._columns = TermColumns(prior.belief, worth)
        self._effects = Effects(self._columns, [])
        self._fitted_to: tuple[tuple[int, TrialState, float | None], ...] | None = None
        self._next: NextPlan | None = None
        self._fits: Callable[[Plan], bool] = lambda _: True
        self._plans: dict[int, Plan] = {}

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Give the choices that make the next plan."""
        drawn = self._choose(study, trial.number).drawn
        if drawn is None:
            return {}
        return {name: CategoricalDistribution(one) for name, one in drawn.choices.items()}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Give its values."""
        drawn = self._choose(study, trial.number).drawn
        return {} if drawn is None else dict(drawn.parameters)

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Draw what no plan of the space has."""
        assert isinstance(param_distribution, CategoricalDistribution)
        choices = param_distribution.choices
        return choices[self._generator.integers(len(choices))]

    def choose_anew(
        self, study: optuna.Study, fits: Callable[[Plan], bool] = lambda _: True
    ) -> NextPlan:
        """Choose the next plan by what may be tried now, and what a trial takes now.

        Args:
            study: The study, with trials that run as well.
            fits: Tells whether a plan's trial fits into the time that is left.
        """
        self._next, self._fits = None, fits
        return self._choose(study)

    def set_earlier(self, earlier: Sequence[ObservedTime]) -> None:
        """Replace the trials of other studies, from which it learns too."""
        self._earlier = list(earlier)
        self._fitted_to = None

    def _choose(self, study: optuna.Study, without: int | None = None) -> NextPlan:
        """Choose the next plan, for the trial of this number; once, while nothing is learned."""
        self._learn(study, without)
        if self._next is None:
            self._next = self._find_next(study, without)
        return self._next

    def _learn(self, study: optuna.Study, without: int | None) -> None:
        """Fit the effects again where the trials are not those of the last time."""
        trials = [t for t in study.get_trials(deepcopy=False) if t.number != without]
        state = tuple((t.number, t.state, t.user_attrs.get(SO_FAR)) for t in trials)
        if state == self._fitted_to:
            return
        self._fitted_to, self._next = state, None
        done = [
            ObservedTime.of(plan, time_s, weight=trial.user_attrs.get(WEIGHT, 1.0))
            for trial in trials
            if (time_s := _time_s(trial)) is not None
            if (plan := self._plan_of(trial)) is not None
        ]
        self._effects = Effects(self._columns, [*self._earlier, *done])
        running = [
            plan
            for trial in trials
            if trial.state is TrialState.RUNNING and _time_s(trial) is None
            if (plan := self._plan_of(trial)) is not None
        ]
        if running and done:
            # What runs is taken to show what is expected of it, so that others are tried beside it.
            means, _ = self._effects.predict(running)
            expected = [ObservedTime(p, float(m)) for p, m in zip(running, means, strict=True)]
            self._effects = Effects(self._columns, [*self._earlier, *done, *expected])

    def _plan_of(self, trial: FrozenTrial) -> Plan | None:
        """Give the plan of a trial, of this sampler or an earlier one."""
        if trial.number not in self._plans:
            if PLAN in trial.user_attrs:
                plan = codec.convert(trial.user_attrs[PLAN], Plan, source="plan")
            else:
                drawn = self._space.find(trial.params)
                if drawn is None or len(trial.params) < len(drawn.parameters):
                    return None
                plan = drawn.plan
            self._plans[trial.number] = plan
        return self._plans[trial.number]

    def _find_next(self, study: optuna.Study, without: int | None) -> NextPlan:
        """Climb from guesses, the best plans so far and random ones, one change at a time."""
        ranked = self._ranked(study)
        pool = PlanPool(
            self._effects, self._best_log_s(ranked), self._trial_s, self._chance, self._least_batch
        )
        # Before the first trial the gain over nothing says nothing: the expected time decides.
        score = pool.per_second if self._done(study) else pool.speed
        tried = self._tried(study, without)
        known = self._best_known(study, [plan for plan, _ in ranked])
        pool.add([*self._space.guesses, *known, *self._random()])
        if self._space.only is not None:
            pool.add(self._space.only)
        else:
            pool.expand(self._space, known)
            for _ in range(_ROUNDS):
                promising = pool.ranked(score)[:_BEAM]
                if not pool.expand(self._space, promising):
                    break
        allowed = list(islice(self._find_allowed(pool.ranked(score), tried), _LOOKS))
        if not allowed:
            return NextPlan(self._find_untried(tried))
        chosen = allowed[0]
        if score is pool.per_second or self._has_looks:
            looks = [self._find_look(drawn, pool, tried) for drawn in allowed]
            chosen = max(looks, key=lambda look: look[0])[1]
        largest = next(self._find_allowed(pool.ranked(pool.gain), tried)).plan
        fastest = next(self._find_allowed(pool.ranked(pool.speed), tried)).plan
        return NextPlan(chosen, pool.gain[largest], fastest, pool.best_log_s + pool.speed[fastest])

    def _find_allowed(self, ranked: Sequence[DrawnPlan], tried: set[Plan]) -> Iterator[DrawnPlan]:
        """Give those of many plans that may be tried now; to ask that takes time."""
        return (one for one in ranked if one.plan not in tried and self._may_try(one.plan))

    def _find_look(
        self, target: DrawnPlan, pool: PlanPool, tried: set[Plan]
    ) -> tuple[float, DrawnPlan]:
        """Find the batch with which a plan is best looked at, and what that is worth per second.

        A step of a small batch is short and shows most of what the plan's settings do. What a trial
        may change of what is expected of the plan itself, is by how much both vary together over
        the deviation of the trial (Frazier, Powell and Dayanik, "The knowledge-gradient policy for
        correlated normal beliefs", 2009).
        """
        (name,) = [name for name in target.parameters if name.endswith(".node_batch")]
        batches = [n for n in target.choices[name] if n != target.parameters[name]]
        if self._space.only is not None:
            batches = []
        others = [self._space.find({**target.parameters, name: n}) for n in batches]
        looks = [target] + [
            other
            for other in others
            if other is not None and other.plan not in tried and self._may_try(other.plan)
        ]
        mean, together = self._effects.covariance([look.plan for look in looks])
        shown = together[0] / np.sqrt(np.diag(together) + self._effects.noise**2)
        # A trial of the plan itself gains over the best that was tried. So does one with a batch
        # too small to be chosen: the final tries the plan. One with another batch only tells which
        # plan to try then: it gains over what is expected of the best of all.
        counts = [look is target or look.plan.node_batch < self._least_batch for look in looks]
        lead = np.where(counts, pool.best_log_s, pool.expected_log_s()) - mean[0]
        gains = expected_improvement(lead, np.maximum(np.abs(shown), _LEAST_DEVIATION))
        worth = [
            gain * self._chance(look.plan) / self._trial_s(look.plan, math.exp(min(one, 50.0)))
            for look, gain, one in zip(looks, gains, mean, strict=True)
        ]
        best = int(np.argmax(worth))
        return worth[best], looks[best]

    def _may_try(self, plan: Plan) -> bool:
        return self._chance(plan) > 0 and self._fits(plan)

    def _random(self) -> list[DrawnPlan]:
        drawn = [self._space.draw_randomly(self._generator) for _ in range(_RANDOM)]
        return [one for one in drawn if one is not None]

    def _find_untried(self, tried: set[Plan]) -> DrawnPlan | None:
        """Draw until something new comes up, or nothing does for a long time."""
        for _ in range(200):
            drawn = self._space.draw_randomly(self._generator)
            if drawn and drawn.plan not in tried and self._may_try(drawn.plan):
                return drawn
        return None

    def _tried(self, study: optuna.Study, without: int | None) -> set[Plan]:
        """Give the plans that were tried, or looked at with a smaller batch.

        Those that were withdrawn (`TrialState.PRUNED`) are not among them.
        """
        trials = study.get_trials(deepcopy=False)
        begun = (t for t in trials if t.number != without and t.state is not TrialState.PRUNED)
        plans = [plan for trial in begun if (plan := self._plan_of(trial)) is not None]
        if self._has_looks:  # which the final tries whole
            plans += [self._raised(plan) for plan in plans]
        return set(plans)

    def _raised(self, plan: Plan) -> Plan:
        """Give a plan with the least batch that may be chosen, where its own is smaller."""
        return replace(plan, node_batch=max(plan.node_batch, self._least_batch))

    def _done(self, study: optuna.Study) -> list[Plan]:
        """Give the plans whose time is known and that might be chosen."""
        timed = [t for t in study.get_trials(deepcopy=False) if _time_s(t) is not None]
        plans = dict.fromkeys(plan for t in timed if (plan := self._plan_of(t)) is not None)
        return [plan for plan in plans if self._chance(plan) > 0]

    def rank_tried(self, study: optuna.Study) -> list[Plan]:
        """Give the plans whose time is known, the fastest first.

        One whose batch is too small to be chosen stands here with the least that may be.
        """
        self._learn(study, None)
        return [plan for plan, _ in self._ranked(study)]

    def _ranked(self, study: optuna.Study) -> list[tuple[Plan, float]]:
        """Give the plans of `rank_tried`, each with the expected logarithm of its time."""
        raised = map(self._raised, self._done(study))
        plans = list(dict.fromkeys(plan for plan in raised if self._chance(plan) > 0))
        if not plans:
            return []
        means, _ = self._effects.predict(plans)
        ranked = zip(plans, means.tolist(), strict=True)
        return sorted(ranked, key=lambda one: one[1])

    def _best_log_s(self, ranked: Sequence[tuple[Plan, float]]) -> float:
        """Give the time of the best plan so far; of the best guess before there is one."""
        if ranked:
            return ranked[0][1]
        guesses = [guess.plan for guess in self._space.guesses]
        means, _ = self._effects.predict(guesses)
        return float(means.min()) if guesses else 0.0

    def _best_known(self, study: optuna.Study, ranked: Sequence[Plan]) -> list[DrawnPlan]:
        """Give the best plans that were tried, and the best of each strategy and device."""
        leading = {(plan.strategy, kind_of(plan)): plan for plan in reversed(ranked)}
        chosen = [*ranked[:_BEST_KEPT], *leading.values()]
        found = [self._space.find_plan(plan, self._parameters(study, plan)) for plan in chosen]
        return list({one.plan: one for one in found if one is not None}.values())

    def _parameters(self, study: optuna.Study, plan: Plan) -> dict[str, Any]:
        for trial in study.get_trials(deepcopy=False):
            if trial.params and self._plan_of(trial) == plan:
                return dict(trial.params)
        return {}


def _time_s(trial: FrozenTrial) -> float | None:
    """Give the time per sample that a trial has shown, also one that still runs."""
    if trial.state is TrialState.COMPLETE:
        return trial.value
    return trial.user_attrs.get(SO_FAR) if trial.state is TrialState.RUNNING else None
