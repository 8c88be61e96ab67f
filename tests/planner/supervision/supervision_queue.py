"""Jobs of a database as a test sees them, and a command that waits until it is told to end."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from launch.system.process_identity import ProcessIdentity
from planner.records.job_record import JobKind, JobRecord, JobState
from planner.store import Store
from planner.supervision.job_folder import JobFolder
from planner.supervision.states import true_jobs
from planner.supervision.submission import submit

DB = "planner.db"
GUARD_S = 240


@dataclass
class Queue:
    """Jobs of one database, as another process sees them."""

    store: Store

    def submit(self, kind: JobKind = JobKind.PROBE, **request: Any) -> int:
        """Submit a job; a probe that does not begin before the place for timing is free."""
        job = submit(self.store, DB, kind, request)
        assert job.id is not None
        return job.id

    def get(self, job_id: int) -> JobRecord:
        return next(true_jobs(self.store, [self.store.jobs.get(job_id)]))

    def log(self, job_id: int) -> str:
        folder = JobFolder.find(self.store.jobs.get(job_id))
        assert folder is not None
        return folder.read_log().text

    def wait(self, job_id: int, *states: JobState) -> JobRecord:
        """Wait until a job is in one of some states; over, where none is given."""
        deadline = time.monotonic() + GUARD_S
        while True:
            job = self.get(job_id)
            if job.state in states or (not states and job.state.is_over):
                return job
            assert time.monotonic() < deadline, f"waited in vain: {job}"
            time.sleep(0.05)

    def wait_for_command(self, job_id: int) -> int:
        """Wait until the command of a probe waits for its turn at timing; give its number."""
        deadline = time.monotonic() + GUARD_S
        while "waiting for" not in self.log(job_id):
            assert time.monotonic() < deadline, self.log(job_id)
            time.sleep(0.05)
        folder = JobFolder.find(self.store.jobs.get(job_id))
        assert folder is not None
        command = folder.read_command()
        assert command is not None
        return command.pid


@contextmanager
def another_process() -> Iterator[ProcessIdentity | None]:
    """Have a process that runs until the end of the block."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield ProcessIdentity.of(process.pid)
        process.kill()
