"""Request of a sweep: which batches on which devices."""

from __future__ import annotations

from dataclasses import dataclass

from launch.workload import Workload

BEST = "best"
"""In place of numbers of plans: the one that would be launched here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest:
    """What the user asks of a sweep."""

    workload: Workload
    batches: tuple[int, ...]
    """Node batches, ascending."""

    devices: tuple[int, ...] = ()
    """Numbers of workers, or of GPUs where there are any, each with PyTorch's defaults. Where
    neither these nor plans are named: 1, 2, 4 and so on up to all, and no more than the smallest
    batch has samples."""

    plans: tuple[int, ...] | str = ()
    """Numbers of stored plans, or `BEST`."""

    epochs: int = 1
    fresh: bool = False
    """Begin a new sweep, without the points of an earlier one with the same settings."""

    allow_stale: bool = False
    """Take plans of other hardware or software too."""
