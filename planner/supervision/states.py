"""True states of jobs: what is stored, held against processes and exit records of this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from planner.errors import StoreError
from planner.plans.stored_plan import iso_utc, utc_now
from planner.records.job_record import JobRecord, JobState
from planner.records.training_record import TrainingRecord, TrainingStatus
from planner.store import Store
from planner.supervision.job_folder import ExitRecord, JobFolder

_SILENT_AFTER = timedelta(seconds=30)
"""A job whose process cannot be seen from here, and that was not heard of for so long, is called
interrupted. It is heard of every 5 s; the rest is for clocks of machines that differ."""

_TRAINING_SILENT_AFTER = timedelta(seconds=120)
"""The same of a training: it writes seldom while another program keeps the database locked."""

_VANISHED = "its processes are gone without a word: they were killed, or the machine was restarted"


def true_jobs(store: Store, records: Iterable[JobRecord]) -> Iterator[JobRecord]:
    """Give jobs as they are; rows of this machine's jobs that ended unheard are set right."""
    for record in records:
        yield record if record.state.is_over else _judge(store, record)


def true_trainings(store: Store, records: Iterable[TrainingRecord]) -> Iterator[TrainingRecord]:
    """Give trainings as they are, as `true_jobs` does."""
    for record in records:
        process, is_running = record.process, record.state is TrainingStatus.RUNNING
        if not is_running or process is None:
            yield record
        elif process.is_alive() is False or process.is_of_earlier_boot():
            assert record.id is not None  # it is stored
            interrupted = replace(record, state=TrainingStatus.INTERRUPTED, error=_VANISHED)
            with suppress(StoreError):  # a database that is only read
                store.trainings.end(record.id, TrainingStatus.INTERRUPTED, error=_VANISHED)
                interrupted = store.trainings.get(record.id)
            yield interrupted
        elif process.is_alive() is None:
            yield _judge_training_by_heartbeat(record)
        else:
            yield record


def _judge_training_by_heartbeat(record: TrainingRecord) -> TrainingRecord:
    heard = record.heartbeat_at or record.started_at
    if utc_now() - heard < _TRAINING_SILENT_AFTER:
        return record
    return replace(record, state=TrainingStatus.INTERRUPTED, error=_describe_silence(record, heard))


def _describe_silence(record: JobRecord | TrainingRecord, heard: datetime) -> str:
    return f"{record.machine} has not been heard of since {iso_utc(heard)}"


def _judge(store: Store, record: JobRecord) -> JobRecord:
    folder = JobFolder.find(record)
    is_alive = None if record.process is None else record.process.is_alive()
    # After that: what a supervisor writes it writes before it ends.
    if folder is not None and (left := folder.read_exit()) is not None:
        return _end(store, record, left)
    if is_alive is None:
        return _judge_by_heartbeat(record)
    command = None if folder is None else folder.read_command()
    if is_alive or (command is not None and command.is_alive()):
        return record  # a command that has lost its supervisor is about to end
    return _end(store, record, None)


def _judge_by_heartbeat(record: JobRecord) -> JobRecord:
    heard = record.heartbeat_at or record.created_at
    if utc_now() - heard < _SILENT_AFTER:
        return record
    return replace(record, state=JobState.INTERRUPTED, error=_describe_silence(record, heard))


def _end(store: Store, record: JobRecord, left: ExitRecord | None) -> JobRecord:
    """Give a job as its exit record has it, or as interrupted; and store that."""
    assert record.id is not None  # it is stored
    if left is None:
        left = ExitRecord(
            state=JobState.INTERRUPTED, exit_code=None, error=_VANISHED, ended_at=utc_now()
        )
    with suppress(StoreError):  # a database that is only read
        store.jobs.end(
            record.id,
            left.state,
            exit_code=left.exit_code,
            error=left.error,
            ended_at=left.ended_at,
        )
        return store.jobs.get(record.id)
    return replace(
        record,
        state=left.state,
        exit_code=left.exit_code,
        error=left.error,
        ended_at=left.ended_at,
    )
