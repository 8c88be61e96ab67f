"""Sweep record: trainings with several batches on several device settings, and their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from launch.plan import Plan
from launch.reports import EpochDone
from planner.plans.software import measurement_key
from planner.trials.result import Outcome
from probes.hardware import Hardware
from probes.timing import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSetting:
    """What trains every batch of a sweep: so many devices, or a stored plan."""

    label: str
    """In a few words, such as ``2 workers``."""

    plan: Plan
    """Its node batch is any: each point has its own."""

    plan_id: int | None = None
    """Of the stored plan; ``None`` where PyTorch's defaults train."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """One training of a sweep: a batch on a device setting."""

    id: int | None = None
    """Given by the store; ``None`` until then."""

    created_at: datetime
    """When it ended."""

    plan: Plan
    """As it trained, with its batch."""

    setting: int
    """Number of its device setting, from 0."""

    side_by_side: str
    """The same for points of a batch that took turns with each other: their times can be compared
    turn by turn."""

    outcome: Outcome

    measurement: Measurement | None = None
    """Times of its turns, as mean steps of a whole batch; ``None`` where none counted."""

    epochs: tuple[EpochDone, ...] = ()
    peak_memory_bytes: int | None = None

    start_s: float | None = None
    """Time until its first step was done: start of its processes, data, model."""

    elapsed_s: float
    """Wall time of the whole point, without the turns of others."""

    reason: str | None = None
    """One line, where it failed."""

    log_tail: str | None = None

    @property
    def batch(self) -> int:
        """Samples per step."""
        return self.plan.node_batch

    @property
    def last_epoch(self) -> EpochDone | None:
        """The result after training; ``None`` of a point that failed."""
        return self.epochs[-1] if self.outcome is Outcome.OK and self.epochs else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRecord:
    """A sweep as stored, without its points."""

    id: int | None = None
    """Given by the store; ``None`` until then."""

    created_at: datetime
    use_case: str
    """As it was asked for; no part of the key: a use case stays the same wherever it lies."""

    data: str | None
    seed: int
    epochs: int
    batches: tuple[int, ...]
    settings: tuple[SweepSetting, ...]
    node: str
    fingerprint: str
    software: Mapping[str, str]

    use_case_digest: str
    """`launch.case_facts.CaseFacts.digest`."""

    train_samples: int
    test_samples: int

    is_generated: bool | None = None
    """Whether the use case made its samples up; ``None`` where that is not known."""

    num_points: int = 0
    """That are stored; given by the store."""

    is_finished: bool = False
    """Whether all points are there."""

    @property
    def key(self) -> str:
        """Name of everything that a sweep goes on with, the same in every process."""
        facts = [
            self.use_case_digest,
            self.data,
            self.seed,
            self.epochs,
            list(self.batches),
            [repr(setting.plan) for setting in self.settings],
            self.node,
            self.fingerprint,
        ]
        return measurement_key(facts, self.software)

    @property
    def size(self) -> int:
        """Number of points when it is done."""
        return len(self.batches) * len(self.settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSweep:
    """A sweep with its points."""

    record: SweepRecord
    points: Sequence[SweepPoint] = ()
    """By batch and setting."""

    hardware: Hardware | None = None
    """Of its machine; ``None`` where no probe of it is stored."""

    def find(self, batch: int, setting: int) -> SweepPoint | None:
        """Give one point; ``None`` where it is not there yet."""
        wanted = (batch, setting)
        return next((one for one in self.points if (one.batch, one.setting) == wanted), None)
