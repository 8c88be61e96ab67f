"""The commands ``ddlplan jobs``, and ``--detach`` of others."""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Mapping
from typing import Any

from launch.system.log_part import MOST_LOG_BYTES
from planner.api import jobs
from planner.errors import NoDatabaseError, NoJobError
from planner.jobs.suggested_command import database_options
from planner.quantities import printable
from planner.records.job_record import JobKind, JobRecord, JobState
from planner.report.jobs import job_json, job_text, jobs_table
from planner.report.output import Output
from planner.report.table import WithCommand
from probes import codec

_POLL_S = 0.5
_LINE_PARTS = re.compile(r"[^\n\t]+")


def submit_job(kind: JobKind, request: Mapping[str, Any], db: str, out: Output) -> None:
    """Start a command as a job, and say how to watch it and how to end it."""
    job = jobs.submit(kind, request, db=db)
    out.write_fact("job", f"{job.id}: {job.title}")
    out.write_fact("watch", WithCommand("", f"{_command('logs', job, db)} -f"))
    out.write_fact("end", WithCommand("", _command("cancel", job, db)))
    out.finish(job_json(job))


def list_jobs(db: str, out: Output, most: int) -> None:
    """Show the newest jobs. Without a database there are none, which is no error."""
    found: list[JobRecord] = []
    with out.missing_as_empty():
        found = jobs.find(most=most, db=db)
        if not found:
            out.note("no jobs: ddlplan tune --detach makes one")
    out.write_text(lambda terminal: jobs_table(found, terminal))
    out.finish([job_json(job) for job in found])


def show_job(db: str, out: Output, job_id: int) -> None:
    """Show one job."""
    job = _get(db, job_id)
    out.write_text(lambda terminal: job_text(job, terminal))
    out.finish(job_json(job))


def show_log(db: str, out: Output, job_id: int) -> None:
    """Write the log of a job; in JSON its last part."""
    _get(db, job_id)
    if out.as_json:
        part = jobs.read_log(job_id, offset=-MOST_LOG_BYTES, db=db)
        out.finish({"id": job_id, **codec.to_builtins(part)})
        return
    _write_log(job_id, db, 0)
    out.finish(None)


def follow_log(db: str, out: Output, job_id: int) -> None:
    """Write the log of a job until the job is over, and say how it ended.

    Ctrl-C ends only this. "Interrupted", as other commands say then, is the state of a job.
    """
    try:
        _follow(db, out, job_id)
    except KeyboardInterrupt:
        out.note(f"job {job_id} goes on")
        out.finish(None)
        raise


def _follow(db: str, out: Output, job_id: int) -> None:
    offset = 0
    is_told = False
    while True:
        # In this order: what it had written by its end is read after that.
        job = _get(db, job_id)
        if job.state is JobState.QUEUED and not is_told:
            out.note(f"job {job_id} is queued: it waits for earlier jobs of {job.machine}")
            is_told = True
        offset = _write_log(job_id, db, offset)
        if job.state.is_over:
            break
        time.sleep(_POLL_S)
    error = "" if job.error is None else f": {job.error}"
    out.note(f"job {job_id} is {job.state}{error}")
    out.finish(None)


def cancel_job(db: str, out: Output, job_id: int) -> None:
    """Ask for the end of a job."""
    _get(db, job_id)
    job = jobs.cancel(job_id, db=db)
    if job.state.is_over:
        out.write_line(f"job {job_id} is {job.state}")
    else:
        out.write_line(WithCommand(f"job {job_id} is being ended; see ", _command("show", job, db)))
    out.finish(job_json(job))


def _get(db: str, job_id: int) -> JobRecord:
    try:
        return jobs.get(job_id, db=db)
    except NoDatabaseError as error:
        raise NoJobError(f"no job {job_id}: {error}") from error


def _write_log(job_id: int, db: str, offset: int) -> int:
    """Write a log from an offset to its end; give the offset of what may come later."""
    while (part := jobs.read_log(job_id, offset=offset, db=db)).text:
        offset = part.next_offset
        sys.stdout.write(_LINE_PARTS.sub(lambda found: printable(found[0]), part.text))
        sys.stdout.flush()
    return offset


def _command(name: str, job: JobRecord, db: str) -> str:
    words = ["ddlplan", "jobs", name, str(job.id)]
    return shlex.join([*words, *database_options(db)])
