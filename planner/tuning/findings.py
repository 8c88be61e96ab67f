"""Findings of a study so far: the baseline, the best plan, the evidence."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Protocol

from launch.case_facts import CaseFacts
from launch.plan import Plan, Setting
from launch.system.session import defer_signals
from planner.search.plan_search import PlanSearch, time_per_sample_s
from planner.search.space import STRATEGIES, find_obstacles, uses_gpus
from planner.trials.drift import remove_drift
from planner.trials.reports import TrialEnded
from planner.trials.result import Outcome, Role, TrialResult, with_longest_compile
from planner.tuning.choice import Candidate, choose, find_runner_up
from planner.tuning.looks import find_look_batch
from planner.tuning.study import AddedTrial, EarlierTrials, LaterTrials, Study
from planner.tuning.subject import Subject, TunedCase
from planner.tuning.tune_request import TuneRequest, is_allowed, least_batch
from probes.hardware import Hardware

_ROUNDS_OF_A_SEARCH = 2**20
"""More rounds than a search can have."""

_MOST_ALIKE = 12
"""Plans that crash for one reason until a search ends in which nothing else was seen."""

_MOST_HISTORY = 300
"""Latest trials that a search learns from: fitting takes time with the cube of their number."""


class TrialStore(Protocol):
    """Keeps the trials of studies: the store, or what tells its owner of them."""

    def begin_search(self, study: Study, *, fresh: bool) -> EarlierTrials:
        """Give the study that goes on, or one that begins afresh, with the trials it has."""

    def add_trial(self, study_id: int, result: TrialResult) -> AddedTrial:
        """Keep a finished trial for good, and tell where. Called once per trial."""

    def later_trials(self, study_id: int, after: int) -> LaterTrials:
        """Give the trials after a number, of the study and of its use case on equal hardware."""


class Findings:
    """The trials of one study, earlier ones included, as a search adds to them.

    Args:
        request: What the user asks.
        case: What is trained, from `TrialRunner.describe`.
        node: The machine that runs the trials.
        software: Versions that the measurements depend on.
        trial_store: Where trials are kept.
        worth: Gives by what it divides the times of steps with a batch of so many, where another
            thing than throughput is searched for.
        subject: What plans are drawn from and compared with; ``None``: the use case.
    """

    def __init__(
        self,
        request: TuneRequest,
        case: CaseFacts,
        node: Hardware,
        software: Mapping[str, str],
        trial_store: TrialStore,
        worth: Callable[[int], float] = lambda _: 1.0,
        subject: Subject | None = None,
    ) -> None:
        self.request = request
        self.worth = worth
        self.case = case
        self.node = node
        self.software = software
        self.training_samples = float(request.epochs * case.train_samples)
        self.least_batch = least_batch(case, request)
        """Smallest batch that a plan may be chosen with: smaller ones are looks."""
        self.subject = subject or TunedCase(case, node)
        self.uses_gpus = uses_gpus(self.subject.sources(request.strategies), case, node)
        """Whether plans on GPUs are searched; PyTorch's defaults may be on one all the same."""
        looks = find_look_batch(case, self.least_batch, node.cpu.usable_cores)
        self.look_batch = None if self.uses_gpus else looks
        """Batch of looks; ``None`` where steps are short enough without, and with GPUs."""
        self.baseline_plan = self.subject.baseline_plan
        self.defaults_plan = self.subject.defaults_plan
        self.study = Study(
            use_case=request.workload.use_case,
            node=node.node,
            fingerprint=node.fingerprint(),
            precision=request.precision,
            software=software,
            data=case.digest,
            seed=request.workload.seed,
            facts=case,
        )
        begun = trial_store.begin_search(self.study, fresh=request.fresh)
        self.study_id = begun.study_id
        self.similar = begun.similar
        """Trials of machines and use cases that are alike."""
        self._trial_store = trial_store
        self._earlier = len(begun.results)
        self._newest = begun.newest
        self._own_ids: set[int] = set()
        self.added: list[TrialResult] = []
        """Trials that were added here, with the times of their own moment, as they were reported.
        """
        # Two searches of one study may run at once. Turns are compared by their rounds, so that
        # those of one search must never have the numbers of another's.
        self.first_round = _ROUNDS_OF_A_SEARCH * random.SystemRandom().randrange(1, 2**32)
        """Number before the first round of this search."""
        self._finished = begun.finished
        self.results = self._level([self._in_role(result) for result in begun.results])
        """Never changed in place."""
        self._rated: tuple[list[TrialResult], list[Candidate]] = ([], [])

    def add(self, result: TrialResult) -> TrialEnded:
        """Store a finished trial, and put its times on the level of the other trials."""
        is_look = result.role is Role.LOOK
        best_s = self._best_look_s() if is_look else self.best_time_s()
        with defer_signals():  # else Ctrl-C could end in a plan that lacks what is stored
            added = self._trial_store.add_trial(self.study_id, result)
            self._own_ids.add(added.id)
            self.added.append(result)
            self.results = self._level([*self.results, result])
        time_s = self.time_per_sample_s(self.results[-1])
        is_best = time_s is not None and (best_s is None or time_s < best_s)
        may_be_best = is_look or result.role.is_for_choice
        return TrialEnded(result=result, number=added.number, is_best=is_best and may_be_best)

    def _in_role(self, result: TrialResult) -> TrialResult:
        """Give an earlier trial in its role here: a look's batch may be what is wanted now."""
        if result.role is Role.LOOK and not self.is_look(result.plan):
            return replace(result, role=Role.SEARCH)
        return result

    def has_finished_with_a_plan(self) -> bool:
        """Tell whether all wanted strategies were searched to the end, with a plan to choose."""
        finished = self.results[: self._finished]
        sources = self.subject.sources(self.request.strategies)
        wanted = set(sources) - find_obstacles(sources, self.case, self.node).keys()
        if not wanted <= {name for result in finished for name in _covered(result)}:
            return False
        found = self._find_candidates(finished)
        # What has failed since is nothing to confirm.
        left = {one.plan for one in self.candidates()} - {self.defaults_plan}
        return any(one.plan in left for one in found)

    def plans_to_confirm(self) -> list[Plan]:
        """Give the best plan of earlier searches and its runner-up, without the defaults."""
        candidates = self.candidates()
        best = choose(candidates)
        second = find_runner_up(candidates, best)
        plans = [one.plan for one in (best, second) if one is not None]
        return [plan for plan in plans if plan != self.defaults_plan]

    def make_search(
        self,
        case: CaseFacts,
        *,
        allows: Callable[[Plan], bool],
        only: Sequence[Mapping[str, Setting]] | None,
    ) -> PlanSearch:
        """Make a search that has learned from all trials so far.

        Args:
            case: What is trained, with the user's limits in its choices.
            allows: Tells which plans may be proposed.
            only: What is drawn for the only plans that may be; ``None``: all.
        """
        return PlanSearch(
            self.subject.sources(self.request.strategies),
            case,
            self.node,
            history=self.history(),
            similar=self.similar,
            only=only,
            worth=self.worth,
            seed=self.request.workload.seed,
            training_samples=self.training_samples,
            least_batch=1 if only is not None else self.least_batch,
            allows=allows,
        )

    def is_look(self, plan: Plan) -> bool:
        """Tell whether a plan's batch is too small to be chosen: it shows what another would do."""
        return plan.node_batch < self.least_batch

    def _best_look_s(self) -> float | None:
        looks = (r for r in self.current_results() if r.role is Role.LOOK)
        times_s = (self.time_per_sample_s(look) for look in looks)
        return min((time_s for time_s in times_s if time_s is not None), default=None)

    def _level(self, results: Sequence[TrialResult]) -> list[TrialResult]:
        """Put the results of this search on one level, and each plan's compile time."""
        known = with_longest_compile(results)
        return [*known[: self._finished], *remove_drift(known[self._finished :])]

    def take_later(self) -> LaterTrials:
        """Give what others have added to the database since the last look.

        They are evidence of which plans to try, without those that there was no time for: see
        `history`. What this search claims rests on its own turns.
        """
        later = self._trial_store.later_trials(self.study_id, self._newest)
        self._newest = later.newest
        others = tuple(
            trial
            for trial in later.own
            if trial.id not in self._own_ids and trial.result.outcome is not Outcome.NO_TIME
        )
        similar = () if self.request.fresh else later.similar
        return replace(later, own=others, similar=similar)

    def snapshot(self) -> EarlierTrials:
        """Give what another search of the study would go on from."""
        return EarlierTrials(
            study_id=self.study_id, results=tuple(self.results), finished=self._finished
        )

    def with_results(self, results: Sequence[TrialResult]) -> Findings:
        """Give the same findings with other times: as many trials, in the same order."""
        copied = copy(self)
        copied.results = list(results)
        return copied

    def new_results(self) -> list[TrialResult]:
        """Give the trials that were added here."""
        return self.results[self._earlier :]

    def crash_alike(self) -> bool:
        """Tell whether all plans of this search crashed for one reason, as others would then."""
        new = self.new_results()
        if len(new) < _MOST_ALIKE or any(one.outcome is not Outcome.CRASH for one in new):
            return False
        return len({result.reason_of_any_worker for result in new}) == 1

    def current_results(self) -> list[TrialResult]:
        """Give the trials since the last search that came to its end."""
        return self.results[self._finished :]

    def spent_s(self) -> float:
        """Give the time that an unfinished search of this study has used already."""
        return sum(result.elapsed_s for result in self.current_results())

    def history(self) -> list[TrialResult]:
        """Give the latest trial of each plan and look: what a model is fitted to.

        What there was no time for is still to be tried.
        """
        tried = (r for r in self.results if r.role.is_for_choice or r.role is Role.LOOK)
        known = [result for result in tried if result.outcome is not Outcome.NO_TIME]
        latest = {result.plan: number for number, result in enumerate(known)}
        recent = set(sorted(latest.values())[-_MOST_HISTORY:])
        return [known[number] for number in latest.values() if number in recent]

    def defaults(self) -> TrialResult | None:
        """Give what PyTorch's defaults showed in this search.

        Since an earlier one the machine may have changed.
        """
        defaults = [r for r in self.current_results() if r.role is Role.DEFAULTS]
        done = [result for result in defaults if result.outcome is Outcome.OK]
        return done[-1] if done else None

    def candidates(self) -> list[Candidate]:
        """Give the plans whose speed is known, and that the user's limits allow."""
        if self._rated[0] is not self.results:
            self._rated = self.results, self._find_candidates(self.results)
        return list(self._rated[1])

    def current_candidates(self) -> list[Candidate]:
        """Give those that this search has measured."""
        return self._find_candidates(self.current_results())

    def _find_candidates(self, results: Sequence[TrialResult]) -> list[Candidate]:
        """Give the plans that trials show the speed of and that the user's limits allow.

        The baseline is a candidate too: where nothing beats it, it is the best plan.
        """
        allowed = [result for result in results if is_allowed(result, self.request)]
        return Candidate.from_results(allowed, self.training_samples)

    def choose(self, candidates: Sequence[Candidate]) -> Candidate:
        """Choose from this search's evidence, once it has measured its finalists again.

        Among them are the best plans of earlier searches. Of other plans' earlier times it is not
        known whether they still hold.
        """
        current = self.current_candidates()
        is_confirmed = any(candidate.role is Role.FINAL for candidate in current)
        return choose(current if is_confirmed else candidates)

    def best_time_s(self) -> float | None:
        """Give the best time per sample so far, in seconds."""
        times_s = (1 / candidate.amortized_throughput.median for candidate in self.candidates())
        return min(times_s, default=None)

    def time_per_sample_s(self, result: TrialResult) -> float | None:
        """Give what the search minimises, compile time included."""
        return time_per_sample_s(result, self.training_samples)

    def explain_no_plan(self) -> str:
        """Say why there is no plan."""
        request = self.request
        results = [result for result in self.results if result.role.is_for_choice]
        if not results:
            return "no trial succeeded: the budget ended before the first one, raise --budget"
        allowed = [result for result in results if is_allowed(result, request)]
        if not allowed and any(result.outcome is Outcome.OK for result in results):
            options = "--budget" if request.trials is None else "--budget or --trials"
            return f"the search ended before a plan within the limits was measured: raise {options}"
        last = (allowed or results)[-1]
        why = f"{last.outcome.words}, {last.reason}"
        if last.outcome is Outcome.TIME_LIMIT and "--budget" not in why:
            why += ": raise --budget"
        return f"no trial of {len(results)} succeeded, the last one: {why}"


def _covered(result: TrialResult) -> list[str]:
    """Give the strategies that a trial's plan was drawn from; its own where that is not stored.

    What was not drawn, as PyTorch's defaults, looked at or whole, is timed whatever is searched.
    """
    if not result.parameters:
        return []
    return str(result.parameters.get(STRATEGIES, result.plan.strategy)).split(",")
