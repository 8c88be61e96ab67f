"""Use cases that train on a CPU by the step that a GPU has, which copies gradients to the host."""

from __future__ import annotations

import tiny_cases
import torch
from torch import nn

from launch.training import plain_step
from launch.training.plain_step import PlainStep

_made = []


def _make(plan, case, group):
    _made.append(PlainStep(plan, case, "cpu", group))
    return _made[-1]


plain_step.make_single_step = _make  # of this worker, whose strategy imports it after this file

Tied = tiny_cases.Tied
Uneven = tiny_cases.Uneven
Sparse = tiny_cases.Sparse
SparseRows = tiny_cases.SparseRows
Clipped = tiny_cases.Clipped


class Watched(nn.Module):
    """Counts the gradients that were on their way before its first layer's was computed."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(192, 8)
        self.last = nn.Linear(8, 3)
        self.register_buffer("sent", torch.zeros(()))

    def forward(self, pictures):
        hidden = self.first(pictures.flatten(1))
        if hidden.requires_grad:
            hidden.register_hook(self._count)
        return self.last(hidden)

    def _count(self, gradient):
        self.sent.fill_(sum(_made[-1]._staging._is_sent))


class Early(tiny_cases.Sgd):
    def model(self):
        return Watched()
