"""Own job: the row in which a running command says what it does."""

from __future__ import annotations

import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from launch.system.process_identity import ProcessIdentity
from planner.errors import CancelledError
from planner.exit_codes import BUG, classify_error
from planner.plans.stored_plan import utc_now
from planner.records.job_record import JobKind, JobRecord, JobState
from planner.scripts.naming import command_line
from planner.store import Store
from planner.supervision.submission import user_name
from planner.supervision.supervisor import JOB_VARIABLE
from probes import codec

_WRITE_EVERY_S = 2.0
_BEAT_S = 6.0
_LOCK_TIMEOUT_S = 1.0
_END_LIMIT_S, _RETRY_S = 3.0, 0.1
"""A command that is done waits so long for its last row, which is tried again meanwhile, and no
longer."""


class OwnJob:
    """Row of the command that this process runs; a supervisor has made the one of a ``job_id``.

    A thread writes it, so that a slow disk and a locked database hold up no step. What cannot be
    written is left out; a database that is missing is not made.
    """

    def __init__(self, db: str, kind: JobKind, job_id: int | None = None) -> None:
        self._db = db
        self._kind = kind
        self._id = job_id
        self._has_supervisor = job_id is not None
        self._started_at = utc_now()
        self._lock = threading.Lock()
        self._unwritten: dict[str, Any] = {}
        """Columns of the row that have changed: ``progress``, ``study_id`` and the like."""
        self._end: tuple[JobState, int | None, str | None] | None = None
        """How the command ended: state, exit code, error."""
        self._is_ending = threading.Event()
        self._gives_up_at = 0.0
        self._writer: threading.Thread | None = None

    def report(self, progress: Any = None, **links: int | None) -> None:
        """Say what the command does; the latest of some seconds is written.

        Args:
            progress: A value of `planner.records.progress`.
            links: ``study_id``, ``training_id``, ``sweep_id``, ``plan_id``, where they are known.
        """
        given = {"progress": progress, **links}
        with self._lock:
            self._unwritten |= {name: value for name, value in given.items() if value is not None}
        if self._writer is None:
            self._writer = threading.Thread(target=self._write_until_end, daemon=True)
            self._writer.start()

    def end(self, state: JobState, exit_code: int | None, error: str | None = None) -> None:
        """Say how the command ended, where anything was reported before."""
        if self._writer is None:
            return
        if not self._has_supervisor:
            self._end = state, exit_code, error
        self._gives_up_at = time.monotonic() + _END_LIMIT_S
        self._is_ending.set()
        if self._writer.is_alive():  # Ctrl-C may come before it is
            self._writer.join(_END_LIMIT_S)

    def _write_until_end(self) -> None:
        # The main thread sleeps in calls that a signal has to wake it from.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        store: Store | None = None
        written_at = -_BEAT_S
        while True:
            is_ending = self._is_ending.is_set()
            with self._lock:
                update, self._unwritten = self._unwritten, {}
            is_written = False
            try:
                if store is None:
                    store = Store.open(self._db, create=False, lock_timeout_s=_LOCK_TIMEOUT_S)
                is_due = time.monotonic() - written_at >= _BEAT_S
                self._write(store, update, is_ending=is_ending, is_due=is_due)
                if update or is_due:
                    written_at = time.monotonic()
                is_written = True
            except Exception:  # noqa: BLE001 - no trouble with it may reach the command
                with self._lock:
                    self._unwritten = update | self._unwritten
            if not is_ending:
                self._is_ending.wait(_WRITE_EVERY_S)
            elif is_written or self._id is None or time.monotonic() >= self._gives_up_at:
                break  # where there is no row, none is left that says that the command runs
            else:
                time.sleep(_RETRY_S)
        if store is not None:
            store.close()

    def _write(
        self, store: Store, update: Mapping[str, Any], *, is_ending: bool, is_due: bool
    ) -> None:
        if self._id is None:
            self._id = store.jobs.add(self._make_record()).id
        assert self._id is not None  # the store has given it
        if update:
            links = {**update}
            progress = codec.to_builtins(links.pop("progress", None), null_for_nan=True)
            store.jobs.set_progress(self._id, progress, **links)
        elif is_due:
            store.jobs.beat(self._id)
        if is_ending and self._end is not None:
            state, code, error = self._end
            store.jobs.end(self._id, state, exit_code=code, error=error)

    def _make_record(self) -> JobRecord:
        return JobRecord(
            kind=self._kind,
            created_at=self._started_at,
            machine=platform.node(),
            user=user_name(),
            title=_command_line(self._kind),
            is_detached=False,
            state=JobState.RUNNING,
            process=ProcessIdentity.of(),
            started_at=self._started_at,
            heartbeat_at=utc_now(),
        )


@contextmanager
def recorded_job(db: str, kind: JobKind) -> Iterator[OwnJob]:
    """Record that this process runs a command, from its first report on, and how it ends.

    A command that has a supervisor uses the row that this one keeps.
    """
    given = os.environ.pop(JOB_VARIABLE, "")
    job = OwnJob(db, kind, int(given) if given.isdecimal() else None)
    try:
        yield job
    except CancelledError as ended:
        state = JobState.CANCELLED if ended.crash is None else JobState.FAILED
        job.end(state, 128 + ended.signal, ended.crash)
        raise
    except Exception as error:
        code, _ = classify_error(error) or (BUG, "bug")
        job.end(JobState.FAILED, code, " ".join(str(error).split())[:1000])
        raise
    except BaseException as ended:
        is_interrupt = isinstance(ended, KeyboardInterrupt)
        job.end(JobState.CANCELLED, 128 + signal.SIGINT if is_interrupt else None)
        raise
    job.end(JobState.DONE, 0)


def _command_line(kind: JobKind) -> str:
    """Give the command as it was typed; of another program only what it does."""
    program = os.path.basename(sys.argv[0])  # noqa: PTH119 - no path is needed
    if program in ("ddlplan", "__main__.py"):
        return command_line(["ddlplan", *sys.argv[1:]])[:1000]
    return f"{kind} by {program or 'a program'}"
