"""Job store: rows of ``jobs``; each change of a state is one transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from launch.system.process_identity import ProcessIdentity
from planner.errors import NoJobError
from planner.records.event_record import Topic
from planner.records.job_record import OPEN_STATES, JobRecord, JobState
from planner.store.databases.database import Database, insert, plain_row
from planner.store.databases.tables import jobs
from planner.store.event_log import record_event
from planner.store.rows import record_columns
from planner.store.selections import having, newest
from probes import codec


class JobStore:
    """Jobs of a database."""

    def __init__(self, database: Database, now: Callable[[], datetime]) -> None:
        self._database = database
        self._now = now

    def add(self, record: JobRecord) -> JobRecord:
        """Save a new job; give it with its number."""
        values = record_columns(record)

        def work(connection: Connection) -> int:
            job_id = insert(connection, jobs, values)
            record_event(connection, Topic.JOB, job_id, self._now)
            return job_id

        return replace(record, id=self._database.write(work))

    def get(self, job_id: int) -> JobRecord:
        """Give one job.

        Raises:
            NoJobError: No job has this number.
        """
        found = self._database.find(select(jobs), jobs.c.id, job_id, job_from_row)
        if found is None:
            raise NoJobError(f"no job {job_id}: ddlplan jobs list shows which there are")
        return found

    def find(
        self,
        *,
        machine: str | None = None,
        states: Collection[JobState] | None = None,
        training_id: int | None = None,
        before: int | None = None,
        most: int | None = None,
    ) -> list[JobRecord]:
        """Give jobs, the newest first of those below a number."""
        query = having(select(jobs), jobs, machine=machine, state=states, training_id=training_id)
        return self._database.fetch(newest(query, jobs, before, most), job_from_row)

    def start(self, job_id: int, process: ProcessIdentity | None) -> bool:
        """Mark a queued job as running; false where it is not queued any more."""
        values = {
            "state": str(JobState.RUNNING),
            "started_at": self._now(),
            "heartbeat_at": self._now(),
            "process": codec.to_builtins(process),
        }
        return self._change(job_id, values, from_states=[JobState.QUEUED])

    def beat(self, job_id: int) -> None:
        """Note that a job is alive. It is no event."""
        this = jobs.update().where(jobs.c.id == job_id)
        self._database.write(lambda found: found.execute(this.values(heartbeat_at=self._now())))

    def set_process(self, job_id: int, process: ProcessIdentity | None) -> bool:
        """Note who waits for the turn of a queued job; false where it is not queued any more."""
        values = {"process": codec.to_builtins(process), "heartbeat_at": self._now()}
        return self._change(job_id, values, from_states=[JobState.QUEUED])

    def set_folder(self, job_id: int, folder: str) -> None:
        """Note where the log of a job is."""
        self._change(job_id, {"folder": folder})

    def set_progress(
        self,
        job_id: int,
        progress: Mapping[str, Any] | None,
        *,
        study_id: int | None = None,
        training_id: int | None = None,
        sweep_id: int | None = None,
        plan_id: int | None = None,
    ) -> None:
        """Save what a job does now, and the numbers of its study, training, sweep and plan.

        A number that is ``None`` leaves the stored one.
        """
        values: dict[str, Any] = {
            "progress": progress,
            "progress_at": None if progress is None else self._now(),
            "study_id": study_id,
            "training_id": training_id,
            "sweep_id": sweep_id,
            "plan_id": plan_id,
        }
        given = {name: value for name, value in values.items() if value is not None}
        self._change(job_id, {"heartbeat_at": self._now(), **given}, from_states=[JobState.RUNNING])

    def request_cancel(self, job_id: int) -> bool:
        """Ask for the end of a job; false where it is over, or was asked before.

        Raises:
            NoJobError: No job has this number.
        """
        if self.get(job_id).cancel_requested_at is not None:
            return False
        return self._change(job_id, {"cancel_requested_at": self._now()}, from_states=OPEN_STATES)

    def end(
        self,
        job_id: int,
        state: JobState,
        *,
        exit_code: int | None = None,
        error: str | None = None,
        ended_at: datetime | None = None,
        from_states: Collection[JobState] = OPEN_STATES,
        judged: JobRecord | None = None,
    ) -> bool:
        """Mark a job as over; false where it was in no such state, which then stays.

        ``judged`` is what was read of it and is over: another process may have it since, which
        goes on, and then nothing changes.
        """
        return self._change(
            job_id,
            {
                "state": str(state),
                "ended_at": ended_at or self._now(),
                "exit_code": exit_code,
                "error": error,
            },
            from_states=from_states,
            judged=judged,
        )

    def _change(
        self,
        job_id: int,
        values: Mapping[str, Any],
        *,
        from_states: Collection[JobState] | None = None,
        judged: JobRecord | None = None,
    ) -> bool:
        query = jobs.update().where(jobs.c.id == job_id)
        if from_states is not None:
            query = query.where(jobs.c.state.in_([str(state) for state in from_states]))

        def work(connection: Connection) -> bool:
            if judged is not None:  # compared here: PostgreSQL's JSON cannot be
                row = connection.execute(select(jobs).where(jobs.c.id == job_id)).mappings().one()
                if job_from_row(plain_row(row)).process != judged.process:
                    return False
            changed = connection.execute(query.values(**values)).rowcount > 0
            if changed:
                record_event(connection, Topic.JOB, job_id, self._now)
            return changed

        return self._database.write(work)


def job_from_row(row: Mapping[str, Any]) -> JobRecord:
    """Read a row of ``jobs``."""
    return codec.convert(row, JobRecord, source="job")
