"""Progress of a job: what a search or a training does now, as other programs are shown it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from launch.errors import InvalidPlanError
from launch.plan import Plan
from probes import codec
from probes.errors import InvalidDocumentError
from probes.timing import Interval

T = TypeVar("T")


def find_progress(values: Mapping[str, Any] | None, kind: type[T]) -> T | None:
    """Read what a job has stored; ``None`` where that is nothing, or nothing of this kind."""
    try:
        return None if values is None else codec.convert(values, kind, source="progress")
    except (InvalidDocumentError, InvalidPlanError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkProgress:
    """A probe or a check under way."""

    doing: str
    """In a few words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContenderStanding:
    """A plan in the race: how it stands against the fastest so far, or why it has left."""

    plan: Plan
    throughput_samples_per_s: float | None
    """``None`` before its first turn."""

    speedup: Interval | None = None
    """Time of a step of the incumbent per sample / its own; ``None`` of the incumbent itself, and
    where their turns are too few to say."""

    is_leading: bool = False
    reason: str | None = None
    """Why it has left; ``None`` of one that still takes turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProgress:
    """A search under way."""

    doing: str
    """In a few words."""

    budget_s: float

    left_s: float | None
    """Of the budget; ``None`` before the first trial."""

    trials: int
    """That have ended."""

    best_samples_per_s: float | None = None
    trial: Plan | None = None
    """Plan that is being tried."""

    standings: tuple[ContenderStanding, ...] = ()
    is_generated: bool = False
    """Whether the use case made its samples up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepProgress:
    """A sweep under way."""

    doing: str
    """In a few words."""

    points: int = 0
    """In all; 0 before that is known."""

    done: int = 0
    batch: int | None = None
    """That is trained."""

    steps: int = 0
    """That each setting has made with it."""

    total: int = 0
    """Steps that each makes with it."""

    is_generated: bool = False
    """Whether the use case made its samples up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProgress:
    """A training under way."""

    doing: str
    epochs: int
    epoch: int = 1
    """From 1."""

    steps: int = 0
    """In all epochs, since it was last started."""

    samples: int = 0
    """Of this epoch, by now."""

    samples_in_epoch: int | None = None
    loss: float | None = None
    """Of the last step; ``None`` before it, and where it is not finite."""

    throughput_samples_per_s: float | None = None
    """Of the last steps."""

    is_generated: bool = False
    """Whether the use case made its samples up."""
