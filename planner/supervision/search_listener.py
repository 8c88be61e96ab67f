"""Search listener: turns the reports of a search into the progress of its job."""

from __future__ import annotations

import time

from launch.plan import Plan
from launch.reports import DataProgress, Noted, Report, Working
from planner.records.progress import ContenderStanding, SearchProgress
from planner.supervision.own_job import OwnJob
from planner.trials.reports import Listener, RoundEnded, StudyOpened, TrialEnded, TrialStarted
from planner.trials.result import TrialResult

_MOST_LEFT = 12
"""Plans that have left the race of which is told, the latest ones."""

_NO_REASON = "not shown to be faster"


class SearchListener:
    """Passes reports on, and keeps the row of the search up to date."""

    def __init__(self, job: OwnJob, then: Listener, *, budget_s: float) -> None:
        self._job = job
        self._then = then
        self._budget_s = budget_s
        self._doing = ""
        self._is_generated = False
        self._deadline: float | None = None
        self._trials = 0
        self._trial: Plan | None = None
        self._best: float | None = None
        self._racing: tuple[ContenderStanding, ...] = ()
        self._left: dict[Plan, ContenderStanding] = {}

    def __call__(self, report: Report, host: str | None = None, /) -> None:
        self._then(report, host)
        study_id = None
        match report:
            case Working(what=what) | Noted(message=what):
                self._doing = what
            case DataProgress(what=what, done=done, total=total):
                self._doing = f"{what} {done}/{total}"
            case StudyOpened():
                study_id, self._is_generated = report.study_id, report.is_generated
            case TrialStarted(plan=plan, role=role, left_s=left_s):
                self._doing, self._trial = f"trying a plan: {role}", plan
                self._deadline = time.monotonic() + left_s
            case RoundEnded(left_s=left_s):
                self._racing, self._trial = report.standings, None
                self._deadline = time.monotonic() + left_s
                self._doing = "racing plans"
            case TrialEnded(result=result, is_best=is_best):
                self._end_trial(result, is_best=is_best, on_host=host is not None)
        self._job.report(self._progress(), study_id=study_id)

    def _end_trial(self, result: TrialResult, *, is_best: bool, on_host: bool) -> None:
        self._trials += 1
        self._trial = None
        rate = result.throughput_samples_per_s()
        if is_best and rate is not None and not on_host:  # hosts have best plans of their own
            self._best = rate.median
        self._left.pop(result.plan, None)
        self._left[result.plan] = ContenderStanding(
            plan=result.plan,
            throughput_samples_per_s=None if rate is None else rate.median,
            reason=result.reason or _NO_REASON,
        )

    def _progress(self) -> SearchProgress:
        now, racing = time.monotonic(), {one.plan for one in self._racing}
        left = [one for plan, one in self._left.items() if plan not in racing]
        return SearchProgress(
            doing=self._doing,
            budget_s=self._budget_s,
            left_s=None if self._deadline is None else max(0.0, self._deadline - now),
            trials=self._trials,
            best_samples_per_s=self._best,
            trial=self._trial,
            standings=(*self._racing, *left[-_MOST_LEFT:]),
            is_generated=self._is_generated,
        )
