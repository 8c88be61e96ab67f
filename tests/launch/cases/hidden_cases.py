"""Use cases whose networks have a layer that uses a parameter in a way that is easily missed."""

from __future__ import annotations

from typing import Any

import torch
from tiny.hidden_layers import WIDTH, Around
from tiny.kept_memory import (
    CloneKept,
    DetachFromInit,
    DetachKept,
    KeptByOne,
    PicturesFromInit,
    Tied,
    ViewFromInit,
)
from tiny_cases import Sgd
from torch import nn


class Hidden(Sgd):
    layer: Any

    def model(self):
        return Around(self.layer())

    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


class ViewFromInitCase(Hidden):
    layer = ViewFromInit


class DetachFromInitCase(Hidden):
    layer = DetachFromInit


class PicturesFromInitCase(Hidden):
    layer = PicturesFromInit


class InStages(Hidden):
    def layers(self, model):
        return nn.Sequential(nn.Flatten(), model.first, nn.Tanh(), model.layer, model.last)


class CloneKeptInStages(InStages):
    layer = CloneKept


class DetachFromInitInStages(InStages):
    layer = DetachFromInit


class DetachKeptInStages(InStages):
    layer = DetachKept


class KeptByOneCase(Hidden):
    layer = KeptByOne


class TiedCase(Hidden):
    layer = Tied


class WithTemperature(Around):
    """Gives a parameter to the loss as it is."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(WIDTH, WIDTH))
        self.temperature = nn.Parameter(torch.zeros(WIDTH, WIDTH))

    def forward(self, pictures):
        return super().forward(pictures), self.temperature


class UsedByLossCase(Hidden):
    def model(self):
        return WithTemperature()

    def loss(self, output, target):
        scores, temperature = output
        return super().loss(scores * temperature.mean().exp() * temperature[0, :3].exp(), target)

    def metrics(self, output, target):
        return {}
