"""Tuning within a budget: baseline, search, finalists measured again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from launch.case_facts import CaseFacts
from launch.plan import Plan, Setting
from launch.strategies import strategy_names
from planner.errors import CancelledError
from planner.search.plan_search import PlanSearch, time_per_sample_s
from planner.trials.reports import Listener, TrialStarted
from planner.trials.result import Outcome, Role, TrialResult
from planner.tuning.choice import find_finalists
from planner.tuning.findings import Findings
from planner.tuning.step_times import find_unmeasured_batches
from planner.tuning.trial_times import MIN_TRIAL_S, STEPS_TO_JUDGE, TrialTimes
from planner.tuning.tune_request import allows, limit_choices
from probes.timing import Interval

_BASELINE_SHARE = 0.5
_CONFIRMATIONS = 2
"""Plans of another node that are tried here at most: the first that runs is confirmed."""
_SHARE_OF_USUAL = 0.5
"""Part of a usual trial that one with a smaller batch may take: its steps are shorter."""
_EXACT_FACTOR = 2.5
"""How much longer a plan may take in fp32: bf16 has twice the peak rate, and half the bytes."""


class RunTrial(Protocol):
    """Runs one plan for a short time, or says what a recorded run of it showed."""

    def __call__(
        self,
        plan: Plan,
        *,
        role: Role,
        time_limit_s: float,
        target_s: float,
        incumbent_s: Interval | None,
        parameters: Mapping[str, Setting],
        on_step: Listener,
    ) -> TrialResult:
        """Run the plan; a failure is a result."""


class Tuner:
    """Drives one search; each trial is kept as it ends.

    Args:
        findings: What the study knows, and takes note of each trial.
        run_trial: Runs a plan.
        listener: Receives `TrialStarted`, `TrialProgress` and `TrialEnded`.
        checked_s: Time of the budget that checks before the search have taken.
        clock: Seconds that only go forward.
    """

    def __init__(
        self,
        findings: Findings,
        run_trial: RunTrial,
        listener: Listener,
        *,
        checked_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._findings = findings
        self._request = findings.request
        self._times = TrialTimes(findings)
        self._run_trial = run_trial
        self._listener = listener
        self._clock = clock
        self._deadline = clock() + self._request.budget_s - checked_s - findings.spent_s()

    def search(self) -> bool:
        """Search until the budget is used up; tell whether it was interrupted before.

        Raises:
            InfeasiblePlanError: None of the strategies can run here.
            KeyboardInterrupt: Ctrl-C came before any trial had succeeded.
            CancelledError: The search was cancelled before that.
        """
        try:
            self._search()
            self._measure_finalists()
            self._measure_exact()
            self._measure_shares()
        except (KeyboardInterrupt, CancelledError):
            if not self._findings.candidates():
                raise
            return True
        return False

    def measure_baseline(self) -> None:
        """Measure the baseline, unless this search has one."""
        if self._findings.baseline() is None:
            limit_s = max(MIN_TRIAL_S, _BASELINE_SHARE * self._remaining_s())
            self._run(self._findings.baseline_plan, limit_s)

    def confirm(self, plans: Sequence[Plan]) -> None:
        """Measure the best plan of a node with equal hardware here; the next where it fails.

        Then the smallest of its shares: what it takes is this node's own, not the other one's.
        """
        for plan in plans[:_CONFIRMATIONS]:
            result = self._run(plan, self._times.limit_s(plan), Role.FINAL)
            if result.outcome is Outcome.OK:
                for share in find_unmeasured_batches(plan, self._findings.current_results())[:1]:
                    self._run(share, self._times.limit_s(share), Role.SHARE)
                return

    def _search(self) -> None:
        self.measure_baseline()
        case = self._with_choices()
        search = PlanSearch(
            self._request.strategies or strategy_names(),
            case,
            self._findings.node,
            history=[r for r in self._findings.results if r.role is not Role.SHARE],
            seed=self._request.workload.seed,
            training_samples=self._findings.training_samples,
            allows=lambda plan: allows(self._request, plan) and self._times.is_affordable(plan),
        )
        while self._can_continue() and (proposal := search.propose()):
            spare_s = self._remaining_s() - self._finalists_reserve_s()
            limit_s = min(self._times.limit_s(proposal.plan), spare_s)
            if limit_s < self._times.min_s(proposal.plan):
                break
            result = self._run(proposal.plan, limit_s, Role.SEARCH, proposal.parameters)
            search.tell(proposal, result)

    def _measure_finalists(self) -> None:
        """Measure the best again: the fastest of many noisy times is faster than it really is."""
        measured = [r.plan for r in self._findings.current_results() if r.role is Role.FINAL]
        waiting = [
            c.plan for c in find_finalists(self._findings.candidates()) if c.plan not in measured
        ]
        spare_s = self._remaining_s() - self._fp32_reserve_s()
        while waiting and spare_s < sum(self._times.min_repeat_s(plan) for plan in waiting):
            waiting.pop()
        while waiting:
            spare_s = self._remaining_s() - self._fp32_reserve_s()
            limit_s = min(self._times.limit_s(waiting[0]), spare_s / len(waiting))
            self._run(waiting.pop(0), limit_s, Role.FINAL)

    def _measure_exact(self) -> None:
        """Measure the best plan in fp32 too, so that what its precision gains is no guess."""
        fp32_plan = self._unmeasured_fp32_plan()
        if fp32_plan is None or self._remaining_s() < self._times.min_s(fp32_plan):
            return
        self._run(fp32_plan, min(self._times.limit_s(fp32_plan), self._remaining_s()), Role.EXACT)

    def _measure_shares(self) -> None:
        """Measure the best plan with smaller batches: among other nodes it may get such a share."""
        for plan in self._plans_of_shares():
            if self._remaining_s() < self._times.min_repeat_s(plan):
                return
            self._run(plan, min(self._times.limit_s(plan), self._remaining_s()), Role.SHARE)

    def _plans_of_shares(self) -> list[Plan]:
        candidates = self._findings.candidates()
        if not candidates:
            return []
        best = self._findings.choose(candidates).plan
        return find_unmeasured_batches(best, self._findings.current_results())

    def _unmeasured_fp32_plan(self) -> Plan | None:
        """Give the best plan with precision fp32, where the user would want to know its speed."""
        candidates = self._findings.candidates()
        if self._request.precision != "auto" or not candidates:
            return None
        fp32_plan = replace(self._findings.choose(candidates).plan, precision="fp32")
        measured = any(
            result.plan == fp32_plan and result.outcome is not Outcome.SLOWER
            for result in self._findings.current_results()
        )
        return None if measured else fp32_plan

    def _run(
        self,
        plan: Plan,
        limit_s: float,
        role: Role = Role.BASELINE,
        parameters: Mapping[str, Setting] | None = None,
    ) -> TrialResult:
        best = self._findings.best_time_s()
        self._listener(TrialStarted(plan=plan, role=role, left_s=self._remaining_s()))
        result = self._run_trial(
            plan,
            role=role,
            time_limit_s=limit_s,
            target_s=self._times.usual_s() * (_SHARE_OF_USUAL if role is Role.SHARE else 1.0),
            incumbent_s=best if role is Role.SEARCH else None,
            parameters=parameters or {},
            on_step=self._listener,
        )
        ended = self._findings.add(result)
        self._listener(ended)
        return ended.result

    def _remaining_s(self) -> float:
        return self._deadline - self._clock()

    def _can_continue(self) -> bool:
        limit = self._request.trials
        drawn = sum(1 for result in self._findings.current_results() if result.role is Role.SEARCH)
        if limit is not None and drawn >= limit:
            return False
        return self._remaining_s() > self._finalists_reserve_s()

    def _finalists_reserve_s(self) -> float:
        """Time to set aside for the finalists; a baseline that nothing beats needs none."""
        if self._findings.has_only_baseline():
            return 0.0
        times = [
            self._findings.time_of(finalist.plan)
            for finalist in find_finalists(self._findings.candidates())
        ]
        return min(sum(times) + self._later_reserve_s(), self._request.budget_s / 3)

    def _later_reserve_s(self) -> float:
        """Time to set aside for what comes after the finalists."""
        return self._fp32_reserve_s() + self._shares_reserve_s()

    def _shares_reserve_s(self) -> float:
        """Time to set aside for the best plan with smaller batches, whose steps are shorter."""
        if not (plans := self._plans_of_shares()):
            return 0.0
        best = self._findings.choose(self._findings.candidates()).plan
        needed_s = _SHARE_OF_USUAL * len(plans) * self._findings.time_of(best)
        return min(needed_s, self._request.budget_s / 8)

    def _fp32_reserve_s(self) -> float:
        """Time to set aside for the best plan in fp32, which is slower."""
        if self._unmeasured_fp32_plan() is None:
            return 0.0
        rounded = self._findings.choose(self._findings.candidates()).plan
        return min(_EXACT_FACTOR * self._findings.time_of(rounded), self._request.budget_s / 6)

    def _with_choices(self) -> CaseFacts:
        """Put the user's limits into the search space, and leave out what takes too long."""
        baseline = self._findings.baseline()
        time_s = (time_per_sample_s(baseline) if baseline else None) or 0.0
        min_s = STEPS_TO_JUDGE * time_s / self._findings.node.cpu.usable_cores
        return limit_choices(self._findings.case, self._request, least_time_per_sample_s=min_s)
