"""Training record: a training with its plans, its epochs and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from launch.plan import Plan
from launch.reports import EpochDone
from launch.system.process_identity import ProcessIdentity


class TrainingStatus(StrEnum):
    """How far a training is."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    INTERRUPTED = "interrupted"
    """Its processes are gone, and nothing says how they ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingHost:
    """One host of a training."""

    host: str
    plan_id: int | None
    plan: Plan
    """As it trained: with its share of the global batch."""

    plan_samples_per_s: float
    """Throughput that its stored plan has alone."""

    machine: str | None = None
    """Own name of the host, by which studies know it; ``None`` where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecord:
    """A training as stored, from its first step on."""

    id: int | None = None
    """Given by the store; ``None`` until then."""

    started_at: datetime
    use_case: str
    data: str | None
    seed: int
    epochs: int
    hosts: tuple[TrainingHost, ...]
    """In the order of the ranks."""

    expected_samples_per_s: float | None
    """``None`` where it was not known."""

    machine: str
    """Name of the machine that started it."""

    run_directory: str
    """Absolute path, on the first host."""

    process: ProcessIdentity | None = None
    """That started it."""

    heartbeat_at: datetime | None = None
    """When that process last wrote how far it is."""

    state: TrainingStatus = TrainingStatus.RUNNING
    ended_at: datetime | None = None
    error: str | None = None
    epochs_done: tuple[EpochDone, ...] = ()
    steps: int = 0
    checkpoint: str | None = None
    """The last one, on the first host; that from which it went on, until it has written one."""

    weights: str | None = None
    """File of them, on the first host."""

    is_generated: bool | None = None
    """Whether the use case made its samples up; ``None`` where it is not known."""

    use_case_digest: str | None = None
    """Of what was trained: see `CaseFacts.digest`. ``None`` where it is not known."""

    @property
    def last_epoch(self) -> int:
        """Number of the last epoch that is done, whichever was the run's first; 0 before that."""
        return max((epoch.epoch for epoch in self.epochs_done), default=0)

    @property
    def last_trained(self) -> EpochDone | None:
        """Last epoch that has trained: one that a checkpoint had at its end was only validated."""
        return next((epoch for epoch in reversed(self.epochs_done) if epoch.samples), None)
