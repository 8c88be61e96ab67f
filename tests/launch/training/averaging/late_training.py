"""A training whose updates may be late, in one process: the other nodes are quick and quiet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from one_process import largest_error
from torch import nn

from launch.local_group.group import LocalThreadGroup
from launch.training.averaging.aliases import aliases_follow
from launch.training.averaging.averaging import GradientAverager

Loss = Callable[[Any], torch.Tensor]
"""Makes one number of what a model gives."""


class QuietReducer:
    """Other nodes, whose sums are there at once and are those of this one."""

    def __init__(self) -> None:
        self._kinds: Sequence[int] = ()
        self._count = 0

    def register_gradient(self, parameter: nn.Parameter, gradient: torch.Tensor) -> int:
        self._count += 1
        return self._count - 1

    def mark_ready(self, index: int) -> None:
        return

    def agree_on_step(
        self,
        loss: float,
        weight: float,
        kinds: Sequence[int],
        indices: Sequence[int],
        *,
        is_full: bool,
    ) -> tuple[float, float]:
        self._kinds = kinds
        return loss, weight

    def global_kinds(self, indices: Sequence[int]) -> Sequence[int]:
        return self._kinds

    def find_summed(self) -> np.ndarray:
        return np.ones(self._count, np.bool_)

    @contextmanager
    def track_wait(self, *, for_node: bool) -> Iterator[None]:
        yield

    def finish(self) -> None:
        return


@dataclass(frozen=True)
class LateTraining:
    """How a training went.

    Attributes:
        is_late: Of each step, whether it left its update to the next one.
        notices: What was said.
        weights: At the end.
    """

    is_late: list[bool]
    notices: list[str]
    weights: dict[str, torch.Tensor]


def train_late(
    model: nn.Module, batches: Sequence[torch.Tensor], loss_of: Loss, lr: float = 0.01
) -> LateTraining:
    """Train a step for each batch."""
    (member,) = LocalThreadGroup.create([()])
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    reducer: Any = QuietReducer()
    with aliases_follow(model):
        averager = GradientAverager(
            model, optimizer, member, reducer=reducer, may_defer_update=True
        )
    pieces = optimizer.param_groups[0]["params"]
    is_late, notices = [], []
    for batch in batches:
        averager.start_step(1)
        with averager.track_uses():
            loss = loss_of(model(batch))
            torch.autograd.backward(loss)
        before = [piece.detach().clone() for piece in pieces]
        averager.step(loss.item())
        is_late.append(all(map(torch.equal, before, pieces)))
        if warning := averager.take_warning():
            notices.append(warning)
    averager.finish()
    assert not all(map(torch.equal, before, pieces)) or not is_late[-1], "it is not trained"
    return LateTraining(is_late, notices, model.state_dict())


def train_plainly(
    model: nn.Module, batches: Sequence[torch.Tensor], loss_of: Loss, lr: float = 0.01
) -> dict[str, torch.Tensor]:
    """Do the same without any of this."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for batch in batches:
        optimizer.zero_grad()
        loss_of(model(batch)).backward()
        optimizer.step()
    return model.state_dict()


def error_of_late(
    make: Callable[[], nn.Module], batches: Sequence[torch.Tensor], loss_of: Loss, lr: float
) -> tuple[LateTraining, float]:
    """Train a model in both ways; give the first one and how far it is from the second."""
    torch.manual_seed(0)
    late = train_late(make(), batches, loss_of, lr)
    torch.manual_seed(0)
    return late, largest_error(late.weights, train_plainly(make(), batches, loss_of, lr))
