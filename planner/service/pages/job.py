"""Job: a command that runs or ran, with its progress, its log and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from planner.api import jobs
from planner.errors import UsageError
from planner.records.job_record import JobKind, JobRecord, JobState
from planner.records.progress import SearchProgress, SweepProgress, TrainingProgress, find_progress
from planner.service.pages.actions import cancel_form
from planner.service.pages.view import Context, PageRequest, View

_LOG_BYTES = 12_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job with what it does, as far as that is known."""

    record: JobRecord
    search: SearchProgress | None = None
    training: TrainingProgress | None = None
    sweep: SweepProgress | None = None

    @property
    def _progress(self) -> SearchProgress | TrainingProgress | SweepProgress | None:
        return self.search or self.training or self.sweep

    @property
    def doing(self) -> str:
        """What it does, in a few words; empty where it has not said or is over."""
        progress = self._progress
        return "" if progress is None or self.record.state.is_over else progress.doing

    @property
    def is_generated(self) -> bool:
        """Whether its samples are made up, as far as it has said."""
        return self._progress is not None and self._progress.is_generated

    @property
    def percent(self) -> int | None:
        """How far it is; ``None`` where that is not known."""
        part = None
        if self.search is not None and self.search.left_s is not None:
            part = 1 - self.search.left_s / self.search.budget_s if self.search.budget_s else 1.0
        elif self.training is not None and self.training.samples_in_epoch:
            epoch = self.training.samples / self.training.samples_in_epoch
            part = (self.training.epoch - 1 + min(1.0, epoch)) / max(1, self.training.epochs)
        elif self.sweep is not None and self.sweep.points:
            part = self.sweep.done / self.sweep.points
        return None if part is None else round(100 * min(1.0, max(0.0, part)))


def _job_view(record: JobRecord) -> JobView:
    """Read the progress of a job."""
    if record.kind is JobKind.LAUNCH:
        return JobView(record=record, training=find_progress(record.progress, TrainingProgress))
    if record.kind is JobKind.TUNE:
        return JobView(record=record, search=find_progress(record.progress, SearchProgress))
    if record.kind is JobKind.SWEEP:
        return JobView(record=record, sweep=find_progress(record.progress, SweepProgress))
    return JobView(record=record)


def job_views(records: Iterable[JobRecord]) -> list[JobView]:
    """Read the progress of jobs."""
    return [_job_view(record) for record in records]


def find_running(is_of: Callable[[JobRecord], bool], context: Context) -> list[JobView]:
    """Give the jobs that run now, of those that are asked for."""
    active = jobs.find(states=[JobState.RUNNING], db=context.db)
    return job_views(filter(is_of, active))


def show(request: PageRequest, context: Context) -> View:
    """Show one job."""
    record = jobs.get(request.numbers["id"], db=context.db)
    log, why_no_log = None, ""
    try:
        log = jobs.read_log(request.numbers["id"], offset=-_LOG_BYTES, db=context.db)
    except UsageError as error:
        why_no_log = str(error)
    return View(
        template="job.html",
        title=f"Job {record.id}",
        values={
            "job": _job_view(record),
            "log": log,
            "why_no_log": why_no_log,
            "forms": cancel_form(record, context),
        },
        topics=[f"job:{record.id}"],
    )
