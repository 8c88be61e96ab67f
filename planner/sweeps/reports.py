"""Reports of a sweep."""

from __future__ import annotations

from dataclasses import dataclass

from launch.reports import Report
from planner.sweeps.sweep_record import SweepPoint, SweepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOpened(Report):
    """The sweep has begun, or goes on."""

    record: SweepRecord
    points: tuple[SweepPoint, ...]
    """That are stored from before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress(Report):
    """The settings of a batch take turns."""

    batch: int
    settings: tuple[str, ...]
    steps: int
    """That each has made."""

    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PointDone(Report):
    """A point is stored."""

    point: SweepPoint
