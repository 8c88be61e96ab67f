"""Reports of a peer's training script: it begins, and each of its steps."""

from __future__ import annotations

from dataclasses import dataclass

from launch.reports import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerBegun(Report):
    """Everything is ready for the first step: what came before was start-up."""

    processes: int
    """That train together, on all hosts."""

    threads: int
    """Of the process that reports."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStepDone(Report):
    """One step of the first process, from the end of the one before. ``None``: not measured."""

    time_s: float
    samples: int
    """Of all processes."""
    loss: float

    loading_s: float | None = None
    """Waiting for the batch."""

    exchange_s: float | None = None
    """Waiting for the sum over all processes after its own last gradient: what the backward pass
    does not hide, the waiting for slower processes included."""

    update_s: float | None = None
    """The optimizer."""
