"""Schedule of a LightningModule, as one that is called after every step."""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler


class MovedSchedule(LRScheduler):
    """A schedule that was made with another optimizer of the same groups.

    The optimizer that trains may be one of pieces, a fused one, or have a learning rate that was
    scaled with the batch; it already has all that the schedule has set in its groups.

    Args:
        optimizer: The one that trains.
        inner: The schedule, fresh, with its own optimizer.
        every: Steps between two of its changes.
    """

    _inner: LRScheduler | None = None

    def __init__(self, optimizer: Optimizer, inner: LRScheduler, every: int) -> None:
        kept = [dict(group) for group in optimizer.param_groups]
        super().__init__(optimizer)  # makes the optimizer count its steps, and sets initial_lr
        for group, before in zip(optimizer.param_groups, kept, strict=True):
            group.update(before)
        pairs = zip(optimizer.param_groups, inner.optimizer.param_groups, strict=True)
        _move(inner, optimizer, [_find_factor(ours, theirs) for ours, theirs in pairs])
        self._inner = inner
        self._every = every
        self._steps = 0

    def step(self, epoch: int | None = None) -> None:
        """Count a step of the optimizer; the schedule changes its rate when it is time."""
        if self._inner is None:  # called by torch, while this is made
            return
        self._steps += 1
        if self._steps % self._every == 0:
            self._inner.step()

    def get_last_lr(self) -> list[Any]:
        """Return the rates that were set last."""
        assert self._inner is not None
        return list(self._inner.get_last_lr())

    def state_dict(self) -> dict[str, Any]:
        """Return the number of steps, and the state of the schedule."""
        assert self._inner is not None
        return {"steps": self._steps, "inner": self._inner.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        assert self._inner is not None
        self._steps = state_dict["steps"]
        self._inner.load_state_dict(state_dict["inner"])


def _find_factor(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """Find by what a group's rate was scaled since the schedule was made."""
    before = float(theirs.get("initial_lr", 0.0))
    return float(ours.get("initial_lr", before)) / before if before else 1.0


def _move(schedule: LRScheduler, optimizer: Optimizer, factors: list[float]) -> None:
    """Let a schedule, and those that it consists of, work for another optimizer."""
    schedule.optimizer = optimizer
    for inner in getattr(schedule, "_schedulers", ()):
        _move(inner, optimizer, factors)
    for name in ("base_lrs", "_last_lr"):
        if rates := getattr(schedule, name, None):
            setattr(schedule, name, [r * f for r, f in zip(rates, factors, strict=True)])
