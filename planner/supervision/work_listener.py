"""Work listener: turns the reports of a probe or a check into the progress of its job."""

from __future__ import annotations

from launch.reports import DataProgress, Noted, Report, Working
from planner.records.progress import WorkProgress
from planner.supervision.own_job import OwnJob
from planner.trials.reports import Listener


class WorkListener:
    """Passes reports on, and keeps the row of the command up to date."""

    def __init__(self, job: OwnJob, then: Listener) -> None:
        self._job = job
        self._then = then
        job.report()

    def __call__(self, report: Report, host: str | None = None, /) -> None:
        self._then(report, host)
        match report:
            case Working(what=what) | Noted(message=what):
                self._job.report(WorkProgress(doing=what))
            case DataProgress(what=what, done=done, total=total):
                self._job.report(WorkProgress(doing=f"{what} {done}/{total}"))
