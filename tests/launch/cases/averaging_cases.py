"""Models, optimizers and batches that averaged training is held against."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

CACHE_LINE = 64
"""Smallest chunk: eight float64 elements, so that every tensor has many boundaries inside."""


SAMPLES = 12


STEPS = 6


ELEMENTWISE = {
    "SGD": partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "SGD damped": partial(torch.optim.SGD, lr=0.1, momentum=0.9, dampening=0.5, maximize=True),
    "SGD foreach": partial(torch.optim.SGD, lr=0.1, momentum=0.9, foreach=True),
    "SGD fused": partial(torch.optim.SGD, lr=0.1, momentum=0.9, fused=True),
    "Adam": partial(torch.optim.Adam, lr=0.01, amsgrad=True),
    "Adam fused": partial(torch.optim.Adam, lr=0.01, fused=True),
    "AdamW": partial(torch.optim.AdamW, lr=0.01, weight_decay=0.1),
    "AdamW fused": partial(torch.optim.AdamW, lr=0.01, weight_decay=0.1, fused=True),
    "Adamax": partial(torch.optim.Adamax, lr=0.01),
    "NAdam": partial(torch.optim.NAdam, lr=0.01),
    "RAdam": partial(torch.optim.RAdam, lr=0.01),
    "RMSprop": partial(torch.optim.RMSprop, lr=0.01, momentum=0.9, centered=True),
    "Rprop": partial(torch.optim.Rprop, lr=0.01),
    "Adagrad": partial(torch.optim.Adagrad, lr=0.1, lr_decay=0.1),
    "Adagrad fused": partial(torch.optim.Adagrad, lr=0.1, fused=True),
    "Adadelta": partial(torch.optim.Adadelta, lr=1.0),
    "ASGD": partial(torch.optim.ASGD, lr=0.1, t0=2),
}


class Layers(nn.Module):
    """Tensors of odd sizes, one in channels_last, one scalar, one empty, one frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 5, 2).to(memory_format=torch.channels_last)
        self.first = nn.Linear(20, 33)
        self.frozen = nn.Parameter(torch.ones(33), requires_grad=False)
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.empty = nn.Parameter(torch.zeros(0))
        self.last = nn.Linear(33, 1)

    def forward(self, pictures):
        hidden = torch.tanh(self.convolution(pictures).flatten(1))
        hidden = torch.tanh(self.first(hidden) * self.scale * self.frozen)
        return self.last(hidden) + self.empty.sum()


class SometimesUnused(Layers):
    """A layer that gives no gradient in every second step, the first one too."""

    def __init__(self) -> None:
        super().__init__()
        self.side = nn.Linear(12, 1)
        self.calls = 0

    def forward(self, pictures):
        self.calls += 1
        output = super().forward(pictures)
        return output if self.calls % 2 else output + self.side(pictures.flatten(1)[:, :12])


def fresh(make_model: Callable[[], nn.Module]) -> nn.Module:
    """Make the same model each time, in float64, so that rounding hides no fault."""
    torch.manual_seed(0)
    return make_model().double()


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    return [(draw(SAMPLES, 3, 3, 3), draw(SAMPLES, 1)) for _ in range(STEPS)]


def momentum_sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


class NormalisedSgd(torch.optim.SGD):
    """A subclass of an elementwise optimizer that is none, and sees its groups by number."""

    def step(self, closure=None):
        assert len(self.param_groups) == 2
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None and parameter.numel():
                        parameter.sub_(parameter.grad / parameter.grad.norm(), alpha=group["lr"])
