"""Own job: the row in which a running command says what it does."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from launch.system.process_identity import ProcessIdentity
from planner.errors import CancelledError, StoreError
from planner.plans.stored_plan import utc_now
from planner.records.job_record import JobKind, JobRecord, JobState
from planner.store import Store
from planner.supervision.submission import user_name
from planner.supervision.supervisor import JOB_VARIABLE
from probes import codec

_WRITE_EVERY_S = 2.0
_LOCK_TIMEOUT_S = 1.0
"""Progress is not worth waiting for: the next one comes soon."""


class OwnJob:
    """Row of the command that this process runs. What cannot be written is left out."""

    def __init__(self, store: Store, job_id: int) -> None:
        self._store = store
        self._id = job_id
        self._written = -_WRITE_EVERY_S

    def report(self, progress: Any, *, now: bool = False, **links: int | None) -> None:
        """Say what the command does, at most every other second unless ``now``.

        Args:
            progress: A value of `planner.records.progress`.
            now: Whether it is worth a row of its own.
            links: ``study_id``, ``training_id``, ``plan_id``, where they are known.
        """
        if not now and not any(links.values()) and not self.is_due:
            return
        self._written = time.monotonic()
        values: Mapping[str, Any] = codec.to_builtins(progress, null_for_nan=True)
        with suppress(StoreError):
            self._store.jobs.set_progress(self._id, values, **links)

    @property
    def is_due(self) -> bool:
        """Whether `report` would write now."""
        return time.monotonic() - self._written >= _WRITE_EVERY_S


@contextmanager
def recorded_job(db: str, kind: JobKind) -> Iterator[OwnJob]:
    """Record that this process runs a command, and how it ends.

    A command that has a supervisor uses the row that this one keeps.
    """
    with Store.open(db, lock_timeout_s=_LOCK_TIMEOUT_S) as store:
        given = os.environ.pop(JOB_VARIABLE, "")
        if given.isdecimal():
            yield OwnJob(store, int(given))
            return
        record = _add_row(store, kind)
        try:
            yield OwnJob(store, record)
        except BaseException as error:
            is_cancelled = isinstance(error, KeyboardInterrupt | CancelledError)
            is_cancelled = is_cancelled or not isinstance(error, Exception)
            state = JobState.CANCELLED if is_cancelled else JobState.FAILED
            message = None if is_cancelled else " ".join(str(error).split())[:1000]
            with suppress(StoreError):
                store.jobs.end(record, state, error=message)
            raise
        with suppress(StoreError):
            store.jobs.end(record, JobState.DONE, exit_code=0)


def _add_row(store: Store, kind: JobKind) -> int:
    record = store.jobs.add(
        JobRecord(
            kind=kind,
            created_at=utc_now(),
            machine=platform.node(),
            user=user_name(),
            title=_command_line(kind),
            is_detached=False,
            state=JobState.RUNNING,
            process=ProcessIdentity.of(),
            started_at=utc_now(),
            heartbeat_at=utc_now(),
        )
    )
    assert record.id is not None  # the store has given it
    return record.id


def _command_line(kind: JobKind) -> str:
    """Give the command as it was typed; of another program only what it does."""
    program = os.path.basename(sys.argv[0])  # noqa: PTH119 - no path is needed
    if program in ("ddlplan", "__main__.py"):
        return shlex.join(["ddlplan", *sys.argv[1:]])[:1000]
    return f"{kind} by {program or 'a program'}"
