"""Event record: a line of the database's log of changes, which readers follow by its number."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Topic(StrEnum):
    """Kind of thing that changed; its number is the id of that thing."""

    MACHINE = "machine"
    STUDY = "study"
    """A search began or went on, a trial was added, or a search ended."""

    PLAN = "plan"
    LINKS = "links"
    JOB = "job"
    TRAINING = "training"
    SWEEP = "sweep"
    """A point was added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """One change, as stored."""

    id: int
    """Grows with every change: whoever has seen this one asks for those after it."""

    created_at: datetime
    topic: Topic
    subject_id: int
