"""Schedule of the learning rate: the use case's, by either form of its method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from launch.use_cases._base import UseCase, takes_epochs


def make_schedule(
    case: UseCase, optimizer: Optimizer, *, steps_per_epoch: int, epochs: int
) -> LRScheduler | None:
    """Make the schedule of an optimizer's learning rate, ``None`` for a constant one."""
    make: Callable[..., Any] = case.schedule
    arguments = (steps_per_epoch, epochs) if takes_epochs(case) else (steps_per_epoch,)
    schedule: LRScheduler | None = make(optimizer, *arguments)
    return schedule
