"""Sweep listener: turns the reports of a sweep into the progress of its job."""

from __future__ import annotations

from dataclasses import replace

from launch.reports import DataProgress, Noted, Report, Working
from planner.records.progress import SweepProgress
from planner.supervision.own_job import OwnJob
from planner.sweeps.reports import BatchProgress, PointDone, SweepOpened
from planner.trials.reports import Listener


class SweepListener:
    """Passes reports on, and keeps the row of the sweep up to date."""

    def __init__(self, job: OwnJob, then: Listener) -> None:
        self._job = job
        self._then = then
        self._progress = SweepProgress(doing="")

    def __call__(self, report: Report, host: str | None = None, /) -> None:
        self._then(report, host)
        sweep_id, now = None, self._progress
        match report:
            case Working(what=what) | Noted(message=what):
                now = replace(now, doing=what)
            case DataProgress(what=what, done=done, total=total):
                now = replace(now, doing=f"{what} {done}/{total}")
            case SweepOpened(record=record, points=points):
                sweep_id = record.id
                now = replace(now, points=record.size, done=len(points))
                now = replace(now, is_generated=bool(record.is_generated))
            case BatchProgress(batch=batch, settings=settings):
                doing = f"batch {batch} with {' and '.join(settings)}"
                now = replace(now, doing=doing, batch=batch, steps=report.steps, total=report.total)
            case PointDone():
                now = replace(now, done=now.done + 1)
        self._progress = now
        self._job.report(now, sweep_id=sweep_id)
