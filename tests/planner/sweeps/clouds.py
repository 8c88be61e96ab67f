"""A use case that learns in a second: points of two clouds that overlap a little."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import TensorDataset

_SAMPLES = {True: 640, False: 200}


class Clouds:
    name = "clouds"
    default_batch = 16

    def model(self):
        return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))

    def dataset(self, data, *, train):
        generator = torch.Generator().manual_seed(1 if train else 2)
        labels = torch.arange(_SAMPLES[train]) % 2
        inputs = torch.randn(_SAMPLES[train], 8, generator=generator) + labels[:, None]
        return TensorDataset(inputs, labels)

    def loss(self, output, target):
        return nn.functional.cross_entropy(output, target)

    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=0.1)

    def metrics(self, output, target):
        return {"accuracy": float((output.argmax(1) == target).float().mean())}


class Explodes(Clouds):
    """Its loss is infinite from the first step on where a batch is large."""

    name = "explodes"

    def loss(self, output, target):
        loss = super().loss(output, target)
        return loss / 0 if len(target) > 100 else loss


class Dies(Clouds):
    """It ends its process in the middle of a large batch."""

    name = "dies"

    def loss(self, output, target):
        import os

        if len(target) > 100:
            os._exit(7)
        return super().loss(output, target)
