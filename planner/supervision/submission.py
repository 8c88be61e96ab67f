"""Submission of a job: its row, its folder, and a supervisor that is nobody's child."""

from __future__ import annotations

import getpass
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from launch.system.process_identity import ProcessIdentity
from planner.errors import SupervisorError
from planner.plans.stored_plan import utc_now
from planner.records.job_record import JobKind, JobRecord, JobState
from planner.store import Store
from planner.supervision.job_folder import JOBS, JobFolder
from planner.supervision.options import make_arguments


def submit(
    store: Store, db: str, kind: JobKind, request: Mapping[str, Any], jobs: Path = JOBS
) -> JobRecord:
    """Store a job and start its supervisor; both outlive this process.

    The command runs in the folder that holds that of the jobs.

    Raises:
        UsageError: An option is none that a job can have.
        RunDirectoryError: The folder cannot be made.
        SupervisorError: The supervisor could not be started.
    """
    arguments = make_arguments(kind, request)
    record = store.jobs.add(
        JobRecord(
            kind=kind,
            created_at=utc_now(),
            machine=platform.node(),
            user=user_name(),
            title=shlex.join(["ddlplan", *arguments]),
            request=dict(request),
            is_detached=True,
            process=ProcessIdentity.of(),  # until the supervisor has the job
            heartbeat_at=utc_now(),
        )
    )
    assert record.id is not None  # the store has given it
    try:
        folder = JobFolder.create(record, jobs)
        store.jobs.set_folder(record.id, str(folder.path))
        _start_supervisor(db, record.id, folder, jobs.absolute().parent)
    except BaseException as error:
        # Nobody else would: as long as this process runs, the job would count as queued. A
        # supervisor may have come so far that it has begun with it.
        message = str(error) or type(error).__name__
        store.jobs.request_cancel(record.id)
        store.jobs.end(record.id, JobState.FAILED, error=message, from_states=[JobState.QUEUED])
        raise
    return store.jobs.get(record.id)


def user_name() -> str:
    """Give the name of the user, or the number where the system has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _start_supervisor(db: str, job_id: int, folder: JobFolder, working: Path) -> None:
    command = [sys.executable, "-P", "-m", "planner.supervision", db, str(job_id)]
    try:
        with folder.log.open("ab") as log:
            code = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=working,
                check=False,
            ).returncode
    except OSError as error:
        raise SupervisorError(f"job {job_id} could not be started: {error}") from error
    if code:
        tail = folder.read_log(-2000).text.strip().splitlines()
        why = tail[-1] if tail else f"exit code {code}"
        raise SupervisorError(f"job {job_id} could not be started: {why}")
