"""True states of jobs: what is stored, held against processes and exit records of this machine."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from planner.errors import StoreError
from planner.plans.stored_plan import iso_utc, utc_now
from planner.records.job_record import JobRecord, JobState
from planner.records.training_record import TrainingRecord, TrainingStatus
from planner.store import Store
from planner.supervision.job_folder import ExitRecord, JobFolder

Record = TypeVar("Record", JobRecord, TrainingRecord)

_SILENT_AFTER = timedelta(seconds=30)
"""A job whose process cannot be seen from here, and that was not heard of for so long, is called
interrupted. It is heard of every 5 s; the rest is for clocks of machines that differ."""

_TRAINING_SILENT_AFTER = timedelta(seconds=120)
"""The same of a training: it writes seldom while another program keeps the database locked.

So long after the last sign of life, a process of an earlier boot counts as gone for good: a name of
a machine and another boot may also be those of a second machine, which uses the same database."""

_VANISHED = "{} is gone and left no record of its end: it was killed, or the machine was restarted"


def true_jobs(store: Store, records: Iterable[JobRecord]) -> Iterator[JobRecord]:
    """Give jobs as they are; rows of this machine's jobs that ended unheard are set right.

    Nothing is written of another machine's job: that machine knows better.
    """
    for record in records:
        yield record if record.state.is_over else _judge(store, record)


def true_trainings(store: Store, records: Iterable[TrainingRecord]) -> Iterator[TrainingRecord]:
    """Give trainings as they are, as `true_jobs` does."""
    for record in records:
        process, is_running = record.process, record.state is TrainingStatus.RUNNING
        if not is_running or process is None:
            yield record
        elif not _is_of_this_machine(record):
            yield _judge_by_heartbeat(record)
        elif process.is_alive() is False or _ended_with_its_boot(record):
            yield _end_training(store, record)
        elif process.is_alive() is None:
            yield _judge_by_heartbeat(record)
        else:
            yield record


def _is_of_this_machine(record: JobRecord | TrainingRecord) -> bool:
    """Whether this machine runs it; another one may have a process of the same number and boot."""
    return record.machine == platform.node() and (
        record.process is None or record.process.is_here()
    )


def _ended_with_its_boot(record: JobRecord | TrainingRecord) -> bool:
    """Whether its machine was started anew since, and nothing was heard of it for long."""
    if record.process is None or not record.process.is_of_earlier_boot():
        return False
    return utc_now() - _last_heard(record) >= _TRAINING_SILENT_AFTER


def _end_training(store: Store, record: TrainingRecord) -> TrainingRecord:
    """Give a training as interrupted when it was last heard of; and store that."""
    assert record.id is not None  # it is stored
    state, error = TrainingStatus.INTERRUPTED, _VANISHED.format("its process")
    heard = _last_heard(record)
    with suppress(StoreError):  # a database that is only read
        store.trainings.end(record.id, state, error=error, ended_at=heard)
        return store.trainings.get(record.id)
    return replace(record, state=state, error=error, ended_at=heard)


def _judge_by_heartbeat(record: Record) -> Record:
    heard = _last_heard(record)
    is_training = isinstance(record, TrainingRecord)
    if utc_now() - heard < (_TRAINING_SILENT_AFTER if is_training else _SILENT_AFTER):
        return record
    error = f"{record.machine} has not been heard of since {iso_utc(heard)}"
    return replace(record, state=type(record.state).INTERRUPTED, error=error)


def _judge(store: Store, record: JobRecord) -> JobRecord:
    folder = JobFolder.find(record)
    is_alive = None if record.process is None else record.process.is_alive()
    # After that: what a supervisor writes it writes before it ends.
    if folder is not None and (left := folder.read_exit()) is not None:
        return _end(store, record, left)
    if _is_of_this_machine(record) and _ended_with_its_boot(record):
        return _end(store, record, None)
    if is_alive is None or not _is_of_this_machine(record):
        return _judge_by_heartbeat(record)
    command = None if folder is None else folder.read_command()
    if is_alive or (command is not None and command.is_alive()):
        return record  # a command that has lost its supervisor is about to end
    return _end(store, record, None)


def _last_heard(record: JobRecord | TrainingRecord) -> datetime:
    if isinstance(record, TrainingRecord):
        return record.heartbeat_at or record.started_at
    return record.heartbeat_at or record.started_at or record.created_at


def _end(store: Store, record: JobRecord, left: ExitRecord | None) -> JobRecord:
    """Give a job as its exit record has it, or as interrupted when it was last heard of.

    That is stored, if the job is one of this machine.
    """
    assert record.id is not None  # it is stored
    if left is None:
        left = ExitRecord(
            state=JobState.INTERRUPTED,
            exit_code=None,
            error=_VANISHED.format("its supervisor" if record.is_detached else "its process"),
            ended_at=_last_heard(record),
        )
    if _is_of_this_machine(record):
        with suppress(StoreError):  # a database that is only read
            store.jobs.end(
                record.id,
                left.state,
                exit_code=left.exit_code,
                error=left.error,
                ended_at=left.ended_at,
                judged=record,
            )
            return store.jobs.get(record.id)
    return replace(
        record,
        state=left.state,
        exit_code=left.exit_code,
        error=left.error,
        ended_at=left.ended_at,
    )
