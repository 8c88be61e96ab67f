"""True states of jobs: what is stored, held against processes and exit records of this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from planner.plans.stored_plan import iso_utc, utc_now
from planner.records.job_record import JobRecord, JobState
from planner.records.training_record import TrainingRecord, TrainingStatus
from planner.store import Store
from planner.supervision.job_folder import JobFolder

_STARTS_WITHIN_S = 60.0
"""A job without a process is being started; importing takes seconds on a busy machine."""

_SILENT_AFTER_S = {True: 10.0, False: 120.0}
"""A job of another machine that was not heard of for so long is called interrupted, by whether it
has a supervisor, which writes every other second. A terminal's command writes when it reports."""

_VANISHED = "its processes are gone without a word: they were killed, or the machine was restarted"


def true_jobs(store: Store, records: Iterable[JobRecord]) -> Iterator[JobRecord]:
    """Give jobs as they are; rows of this machine's jobs that ended unheard are set right."""
    for record in records:
        if record.state.is_over:
            yield record
        elif record.process is None:
            yield _judge_without_process(store, record)
        elif not record.process.is_here():
            yield _judge_by_heartbeat(record)
        elif record.process.is_alive():
            yield record
        else:
            yield _end(store, record)


def true_trainings(store: Store, records: Iterable[TrainingRecord]) -> Iterator[TrainingRecord]:
    """Give trainings as they are, as `true_jobs` does."""
    for record in records:
        process, is_running = record.process, record.state is TrainingStatus.RUNNING
        if not is_running or process is None or not process.is_here() or process.is_alive():
            yield record
            continue
        assert record.id is not None  # it is stored
        store.trainings.end(record.id, TrainingStatus.INTERRUPTED, error=_VANISHED)
        yield store.trainings.get(record.id)


def _judge_without_process(store: Store, record: JobRecord) -> JobRecord:
    if utc_now() - record.created_at < timedelta(seconds=_STARTS_WITHIN_S):
        return record
    return _end(store, record)


def _judge_by_heartbeat(record: JobRecord) -> JobRecord:
    heard = record.heartbeat_at or record.created_at
    if utc_now() - heard < timedelta(seconds=_SILENT_AFTER_S[record.is_detached]):
        return record
    error = f"{record.machine} has not been heard of since {iso_utc(heard)}"
    return replace(record, state=JobState.INTERRUPTED, error=error)


def _end(store: Store, record: JobRecord) -> JobRecord:
    assert record.id is not None  # it is stored
    left = None if record.folder is None else JobFolder(Path(record.folder)).read_exit()
    if left is None:
        store.jobs.end(record.id, JobState.INTERRUPTED, error=_VANISHED)
    else:
        store.jobs.end(
            record.id,
            left.state,
            exit_code=left.exit_code,
            error=left.error,
            ended_at=left.ended_at,
        )
    return store.jobs.get(record.id)
