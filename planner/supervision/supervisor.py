"""Supervisor: waits for the turn of a job, runs its command, and records how that ended.

It runs in a session of its own and belongs to nobody: neither a terminal nor a server that ends
takes it along. Its command ends with it, by the kernel's word, so that no command runs of which
nobody would know the end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from launch.system.process_end import bind_to_parent, explain_exit, kill_group
from launch.system.process_identity import ProcessIdentity
from planner.errors import StoreError
from planner.plans.stored_plan import utc_now
from planner.records.job_record import JobRecord, JobState
from planner.store import Store
from planner.supervision.job_folder import ExitRecord, JobFolder
from planner.supervision.options import make_arguments
from planner.supervision.states import true_jobs

JOB_VARIABLE = "DDLPLAN_JOB"
"""Number of the job whose row the command keeps; it takes the variable out of its environment."""

_POLL_S = 0.25
_BEAT_S = 2.0
_LOCK_TIMEOUT_S = 5.0
_RETRY_S, _RETRIES = 5.0, 120
"""A database that cannot be written to is tried for ten minutes; the exit record stays anyway."""

_ESCALATION = ((0.0, signal.SIGINT), (15.0, signal.SIGINT), (30.0, signal.SIGTERM))
"""What a cancelled command is sent, and after how long: a training makes a checkpoint meanwhile."""

_KILL_AFTER_S = 40.0
_ERROR_TAIL_BYTES = 8192


class Supervisor:
    """One job, from its place in the queue to its exit record.

    Args:
        db: Database of the job.
        job_id: Its number.
    """

    def __init__(self, db: str, job_id: int) -> None:
        self._db = db
        self._id = job_id
        self._store = Store.open(db, create=False, lock_timeout_s=_LOCK_TIMEOUT_S)
        self._record = self._store.jobs.get(job_id)
        assert self._record.folder is not None, "only a detached job has a supervisor"
        self._folder = JobFolder(Path(self._record.folder))
        self._beaten = 0.0
        self._asked = False

    def register(self) -> None:
        """Say in the database that this process has the job."""
        self._store.jobs.set_process(self._id, ProcessIdentity.of())

    def run(self) -> None:
        """Wait for the turn, run the command, record its end."""
        if not self._wait_for_turn():
            self._conclude(JobState.CANCELLED, None, None)
            return
        if not self._store.jobs.start(self._id, ProcessIdentity.of()):
            return  # it was ended by another, who took this process for dead
        code, was_cancelled = self._run_command()
        state, error = self._judge(code, was_cancelled=was_cancelled)
        self._conclude(state, code, error)

    def _wait_for_turn(self) -> bool:
        """Wait until no earlier job of this machine is left; false where the job was cancelled."""
        while True:
            if self._is_cancelled():
                return False
            with suppress(StoreError):
                if self._is_first():
                    return True
            self._beat()
            time.sleep(_POLL_S)

    def _is_first(self) -> bool:
        open_states = (JobState.QUEUED, JobState.RUNNING)
        earlier = self._store.jobs.find(
            machine=self._record.machine, states=open_states, before=self._id
        )
        waiting = (job for job in earlier if job.is_detached)
        return all(job.state.is_over for job in true_jobs(self._store, waiting))

    def _run_command(self) -> tuple[int, bool]:
        """Run the command to its end; give its exit code, and whether it was cancelled."""
        with self._folder.log.open("ab") as log:
            command = subprocess.Popen(
                bind_to_parent(make_command(self._record, self._db)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
                env={**os.environ, JOB_VARIABLE: str(self._id)},
            )
        asked_at: float | None = None
        steps = list(_ESCALATION)
        while (code := command.poll()) is None:
            if asked_at is None and self._is_cancelled():
                asked_at = time.monotonic()
            if asked_at is not None:
                since = time.monotonic() - asked_at
                while steps and since >= steps[0][0]:
                    _send_to_group(command.pid, steps.pop(0)[1])
                if since >= _KILL_AFTER_S:
                    kill_group(command.pid)
            self._beat()
            time.sleep(_POLL_S)
        kill_group(command.pid)  # what it may have left of its group
        return code, asked_at is not None

    def _judge(self, code: int, *, was_cancelled: bool) -> tuple[JobState, str | None]:
        if code == 0:
            return JobState.DONE, None
        signals = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
        if was_cancelled and (code < 0 or code in [128 + number for number in signals]):
            return JobState.CANCELLED, None
        return JobState.FAILED, self._find_error() or explain_exit(code)

    def _find_error(self) -> str | None:
        """Find the line of the log in which the command says why it failed."""
        tail = self._folder.read_log(-_ERROR_TAIL_BYTES, _ERROR_TAIL_BYTES).text.splitlines()
        heads = [number for number, line in enumerate(tail) if line.startswith("error: ")]
        return " ".join(tail[heads[-1] :]).removeprefix("error: ")[:1000] if heads else None

    def _conclude(self, state: JobState, code: int | None, error: str | None) -> None:
        record = ExitRecord(state=state, exit_code=code, error=error, ended_at=utc_now())
        self._folder.write_exit(record)
        self._insist(lambda: self._store.jobs.end(self._id, state, exit_code=code, error=error))

    def _insist(self, write: Callable[[], object]) -> None:
        for _ in range(_RETRIES):
            try:
                write()
            except StoreError:
                time.sleep(_RETRY_S)
            else:
                return

    def _is_cancelled(self) -> bool:
        if not self._asked:
            with suppress(StoreError):
                self._asked = self._store.jobs.get(self._id).cancel_requested_at is not None
        return self._asked

    def _beat(self) -> None:
        if time.monotonic() - self._beaten >= _BEAT_S:
            self._beaten = time.monotonic()
            with suppress(StoreError):
                self._store.jobs.beat(self._id)


def make_command(record: JobRecord, db: str) -> list[str]:
    """Give the command line of a job: ddlplan of this installation, with listed options only."""
    arguments = make_arguments(record.kind, record.request)
    return [sys.executable, "-P", "-m", "planner", *arguments, f"--db={db}"]


def _send_to_group(leader: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
