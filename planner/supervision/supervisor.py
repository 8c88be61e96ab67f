"""Supervisor: waits for the turn of a job, runs its command, and records how that ended.

It runs in a session of its own and belongs to nobody: neither a terminal nor a server that ends
takes it along. Its command ends with it, by the kernel's word, so that no command runs of which
nobody would know the end; and what the command leaves running ends after it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from launch.system.durable_files import explain_os_error
from launch.system.process_end import bind_to_parent, explain_exit, kill_group
from launch.system.process_identity import ProcessIdentity
from launch.system.process_tree import adopt_orphans, end_descendants, has_ended, reap_orphans
from planner.errors import StoreError
from planner.plans.stored_plan import utc_now
from planner.records.job_record import OPEN_STATES, JobRecord, JobState
from planner.store import Store
from planner.supervision.job_folder import ExitRecord, JobFolder
from planner.supervision.options import NOT_FOR_JOBS, OPTIONS, make_arguments
from planner.supervision.states import true_jobs

JOB_VARIABLE = "DDLPLAN_JOB"
"""Number of the job whose row the command keeps; it takes the variable out of its environment."""

_POLL_S = 0.1
_LOOK_S = 1.0
"""Between looks at the database: at those in front, and whether the job is to end."""

_BEAT_S = 5.0
_LOCK_TIMEOUT_S = 5.0
_RETRY_S, _RETRIES = 5.0, 120
"""A full disk and a database that cannot be written to are tried for ten minutes."""

_ESCALATION = ((0.0, signal.SIGINT), (60.0, signal.SIGINT), (70.0, signal.SIGTERM))
"""What a command that is to end is sent, and after how long: first a training ends its step and
writes a checkpoint, then anything ends at once."""

_KILL_AFTER_S = 80.0
_GRACE_S = 5.0
"""For what a command leaves running: mpirun ends its ranks, and they their workers."""

_ERROR_TAIL_BYTES = 8192
_TERMINAL_VARIABLES = ("FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
"""They would bring colours and moving lines into the log."""


class Supervisor:
    """One job, from its place in the queue to its exit record."""

    def __init__(self, db: str, job_id: int) -> None:
        self._db = db
        self._id = job_id
        self._store = Store.open(
            db, create=False, lock_timeout_s=_LOCK_TIMEOUT_S, outage_s=_LOCK_TIMEOUT_S
        )
        self._record = self._store.jobs.get(job_id)
        assert self._record.folder is not None, "only a detached job has a supervisor"
        self._folder = JobFolder(Path(self._record.folder))
        self._looked_at = self._beaten_at = -_BEAT_S
        self._is_cancelled = False
        self._end_signal: int | None = None

    def register(self) -> bool:
        """Say in the database that this process has the job; false where it was ended before."""
        adopt_orphans()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # Handled and not ignored, as who started this may have them: the command inherits that.
            signal.signal(number, self._note_signal)
        return self._store.jobs.set_process(self._id, ProcessIdentity.of())

    def run(self) -> None:
        """Wait for the turn, run the command, record its end."""
        code: int | None = None
        try:
            if self._wait_for_turn():
                if not self._insist(lambda: self._store.jobs.start(self._id, ProcessIdentity.of())):
                    return  # it was ended by another, who took this process for dead
                code = self._run_command()
            state, error = self._judge(code)
        except OSError as problem:
            state, error = JobState.FAILED, explain_os_error(problem)
        except Exception as bug:  # noqa: BLE001 - also then the end of the job has to be known
            traceback.print_exc()
            state, error = JobState.FAILED, f"{type(bug).__name__}: {bug}"
        end_descendants(grace_s=_GRACE_S)
        self._conclude(state, code, error)

    def _note_signal(self, number: int, _: object) -> None:
        self._end_signal = number

    def _wait_for_turn(self) -> bool:
        """Wait until no earlier job of this machine is left; false where the job is to end."""
        while not self._must_end():
            with suppress(StoreError):
                if self._is_first():
                    return True
            self._beat()
            time.sleep(_LOOK_S)
        return False

    def _is_first(self) -> bool:
        earlier = self._store.jobs.find(
            machine=self._record.machine, states=OPEN_STATES, before=self._id
        )
        waiting = (job for job in earlier if job.is_detached)
        return all(job.state.is_over for job in true_jobs(self._store, waiting))

    def _run_command(self) -> int:
        """Run the command to its end, and give its exit code."""
        os.stat(".")  # noqa: PTH116 - a folder that was removed has no path
        with self._folder.log.open("ab") as log:
            command = subprocess.Popen(
                bind_to_parent(make_command(self._record, self._db)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
                env=make_environment(os.environ, self._record),
            )
        if (process := ProcessIdentity.of(command.pid)) is not None:
            with suppress(OSError):
                self._folder.write_command(process)
        asked_at: float | None = None
        steps = list(_ESCALATION)
        while not has_ended(command.pid):
            if asked_at is None and self._must_end():
                asked_at = time.monotonic()
            if asked_at is not None:
                since = time.monotonic() - asked_at
                while steps and since >= steps[0][0]:
                    kill_group(command.pid, steps.pop(0)[1])
                if since >= _KILL_AFTER_S:
                    kill_group(command.pid)
            self._beat()
            reap_orphans(command.pid)
            time.sleep(_POLL_S)
        kill_group(command.pid)  # before its number may become that of another
        return command.wait()

    def _must_end(self) -> bool:
        """Whether the job is cancelled, or this process is to end."""
        if self._end_signal is None and not self._is_cancelled:
            now = time.monotonic()
            if now - self._looked_at >= _LOOK_S:
                self._looked_at = now
                with suppress(StoreError):
                    asked = self._store.jobs.get(self._id).cancel_requested_at
                    self._is_cancelled = asked is not None
        return self._is_cancelled or self._end_signal is not None

    def _judge(self, code: int | None) -> tuple[JobState, str | None]:
        """Give what the end of the command means; ``None`` stands for one that was not started."""
        if code == 0:
            return JobState.DONE, None
        number = None if code is None else -code if code < 0 else max(code - 128, 0)
        ends = (None, signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
        if number in ends and self._end_signal is not None:
            name = signal.Signals(self._end_signal).name
            return JobState.INTERRUPTED, f"its supervisor was ended by {name}"
        if number in ends and self._is_cancelled:
            return JobState.CANCELLED, None
        assert code is not None, "only what is to end is not started"
        if number:
            return JobState.FAILED, explain_exit(-number)
        return JobState.FAILED, self._find_error() or explain_exit(code)

    def _find_error(self) -> str | None:
        """Find the line of the log in which the command says why it failed."""
        tail = self._folder.read_log(-_ERROR_TAIL_BYTES, _ERROR_TAIL_BYTES).text.splitlines()
        heads = [number for number, line in enumerate(tail) if line.startswith("error: ")]
        return " ".join(tail[heads[-1] :]).removeprefix("error: ")[:1000] if heads else None

    def _conclude(self, state: JobState, code: int | None, error: str | None) -> None:
        """Record the end in the folder and in the database; either will do for a while."""
        record = ExitRecord(state=state, exit_code=code, error=error, ended_at=utc_now())

        def write() -> bool:
            with suppress(OSError):
                if self._folder.read_exit() is None:
                    self._folder.write_exit(record)
            return self._store.jobs.end(
                self._id, state, exit_code=code, error=error, ended_at=record.ended_at
            )

        self._insist(write)

    def _insist(self, write: Callable[[], bool]) -> bool:
        """Write to the database, as often as that fails, for some time."""
        for attempt in range(_RETRIES):
            try:
                return write()
            except StoreError:
                if attempt == _RETRIES - 1:
                    raise
                time.sleep(_RETRY_S)
        return False

    def _beat(self) -> None:
        if time.monotonic() - self._beaten_at >= _BEAT_S:
            self._beaten_at = time.monotonic()
            with suppress(StoreError):
                self._store.jobs.beat(self._id)


def make_command(record: JobRecord, db: str) -> list[str]:
    """Give the command line of a job: ddlplan of this installation, with listed options only."""
    arguments = make_arguments(record.kind, record.request)
    return [sys.executable, "-P", "-m", "planner", *arguments, f"--db={db}"]


def make_environment(environment: Mapping[str, str], record: JobRecord) -> dict[str, str]:
    """Give the environment of a command: that of who submitted it, without its options.

    They counted when the job was submitted; now they would count once more.
    """
    options = (*OPTIONS[record.kind], *NOT_FOR_JOBS)
    left_out = {*_TERMINAL_VARIABLES, *(f"DDLPLAN_{name.upper()}" for name in options)}
    kept = {name: value for name, value in environment.items() if name not in left_out}
    return {**kept, JOB_VARIABLE: str(record.id)}
