"""Search listener: turns the reports of a search into the progress of its job."""

from __future__ import annotations

import time
from dataclasses import replace

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
        self._known = SearchProgress(doing="", budget_s=budget_s, left_s=None, trials=0)
        self._deadline: float | None = None
        self._racing: tuple[ContenderStanding, ...] = ()
        self._left: dict[Plan, ContenderStanding] = {}

    def __call__(self, report: Report, host: str | None = None, /) -> None:
        self._then(report, host)
        study_id: int | None = None
        now = self._known
        match report:
            case Working(what=what) | Noted(message=what):
                now = replace(now, doing=what)
            case DataProgress(what=what, done=done, total=total):
                now = replace(now, doing=f"{what} {done}/{total}")
            case StudyOpened():
                study_id, now = report.study_id, replace(now, is_generated=report.is_generated)
            case TrialStarted(plan=plan, role=role, left_s=left_s):
                now = replace(now, doing=f"trying a plan: {role}", trial=plan)
                self._deadline = time.monotonic() + left_s
            case RoundEnded(left_s=left_s):
                now = replace(now, doing="racing plans", trial=None)
                self._deadline, self._racing = time.monotonic() + left_s, report.standings
            case TrialEnded(result=result, is_best=is_best):
                # Hosts have best plans of their own.
                now = self._after_trial(result, is_best=is_best and host is None)
        self._known = now
        self._job.report(self._progress(), study_id=study_id)

    def _after_trial(self, result: TrialResult, *, is_best: bool) -> SearchProgress:
        now, rate = self._known, result.throughput_samples_per_s()
        self._left.pop(result.plan, None)
        self._left[result.plan] = ContenderStanding(
            plan=result.plan,
            throughput_samples_per_s=None if rate is None else rate.median,
            reason=result.reason or _NO_REASON,
        )
        best = now.best_samples_per_s if rate is None or not is_best else rate.median
        return replace(now, trials=now.trials + 1, trial=None, best_samples_per_s=best)

    def _progress(self) -> SearchProgress:
        racing = {one.plan for one in self._racing}
        left = [one for plan, one in self._left.items() if plan not in racing]
        left_s = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        standings = (*self._racing, *left[-_MOST_LEFT:])
        return replace(self._known, left_s=left_s, standings=standings)
