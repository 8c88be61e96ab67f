"""Job record: a command that runs or ran, with its request, its progress and its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from launch.system.process_identity import ProcessIdentity


class JobKind(StrEnum):
    """Command of a job."""

    TUNE = "tune"
    LAUNCH = "launch"
    PROBE = "probe"
    DOCTOR = "doctor"
    SWEEP = "sweep"


class JobState(StrEnum):
    """How far a job is."""

    QUEUED = "queued"
    """It waits for jobs of its machine that came before it."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    INTERRUPTED = "interrupted"
    """Its processes are gone, and nothing says how they ended."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of the job."""
        return self not in OPEN_STATES


OPEN_STATES = (JobState.QUEUED, JobState.RUNNING)
"""Of jobs that are not over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A command that runs or ran, as stored."""

    id: int | None = None
    """Given by the store; ``None`` until then."""

    kind: JobKind
    created_at: datetime

    machine: str
    """Name of the machine that runs it."""

    user: str
    """Name of the user of that machine."""

    title: str
    """The command in one line, as a person would type it; no secrets."""

    request: Mapping[str, Any] = field(default_factory=dict)
    """Options by their long names without dashes; empty for one that a terminal runs."""

    is_detached: bool
    """Whether a supervisor runs it; else a terminal, which nobody but its user ends."""

    folder: str | None = None
    """Absolute path of its log and exit record on that machine; ``None`` without a supervisor."""

    state: JobState = JobState.QUEUED
    process: ProcessIdentity | None = None
    """Supervisor, or the command itself where it has none."""

    heartbeat_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    exit_code: int | None = None

    error: str | None = None
    """One line, of one that failed."""

    study_id: int | None = None
    training_id: int | None = None
    sweep_id: int | None = None
    plan_id: int | None = None
    """What it made or used, as far as known."""

    progress: Mapping[str, Any] | None = None
    """What it does now: `planner.records.progress`."""

    progress_at: datetime | None = None

    def took_s(self, now: datetime) -> float | None:
        """Give its seconds so far, of one that is over up to its end or the last sign of life.

        ``None`` where it has not begun, or nothing is known of its end.
        """
        end = self.ended_at or (self.heartbeat_at if self.state.is_over else now)
        if self.started_at is None or end is None:
            return None
        return max(0.0, (end - self.started_at).total_seconds())
