"""The network, pictures and optimizer of most tiny use cases."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from launch.use_cases._base import UseCase


class Pictures(torch.utils.data.Dataset):
    """Random pictures, each the same whoever asks for it."""

    def __init__(self, size: int, side: int = 8) -> None:
        self._size = size
        self._side = side

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, self._side, self._side, generator=generator), index % 3


class Sgd(UseCase):
    """A small convolutional network without anything random in its step."""

    name = "tiny"
    default_batch = 8

    def model(self):
        return nn.Sequential(
            nn.Conv2d(3, 6, 3),
            nn.ReLU(),
            nn.Conv2d(6, 8, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(128, 16),
            nn.ReLU(),
            nn.Linear(16, 3),
        )

    def dataset(self, data, *, train: bool):
        return Pictures(160 if train else 10)

    def loss(self, output, target):
        return functional.cross_entropy(output, target)

    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)

    def metrics(self, output, target):
        return {"accuracy": (output.argmax(1) == target).float().mean().item()}


class Misspelt(Sgd):
    """Has a schedule that nobody calls, of which a check warns."""

    def schedul(self, optimizer, steps_per_epoch):
        return None


class Gradient(Sgd):
    """One step at rate 1 moves the weights by exactly their gradient."""

    def dataset(self, data, *, train: bool):
        return Pictures(16 if train else 3)

    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=1.0)
