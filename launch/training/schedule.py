"""Learning rate: scaled with the batch, and the use case's schedule of it."""

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


def scale_learning_rates(optimizer: Optimizer, factor: float) -> None:
    """Scale the learning rate of each group, before there is a schedule of it."""
    if factor == 1:
        return
    for group in optimizer.param_groups:
        for name in ("lr", "initial_lr"):
            if name in group:
                group[name] = group[name] * factor
