"""Models with tied, sparse, unused and counting layers, and such as normalise."""

from __future__ import annotations

import time

import torch
from torch import nn

from tiny.base import Gradient, Pictures, Sgd


class AlexNet(Gradient):
    """Its convolutions, and a quarter as wide what follows: one tensor is still more than a bucket.

    Without its dropout.
    """

    def model(self):
        def relu() -> nn.Module:
            return nn.ReLU(inplace=True)

        return nn.Sequential(
            *(nn.Conv2d(3, 64, 11, stride=4, padding=2), relu(), nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(64, 192, 5, padding=2), relu(), nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(192, 384, 3, padding=1), relu()),
            *(nn.Conv2d(384, 256, 3, padding=1), relu()),
            *(nn.Conv2d(256, 256, 3, padding=1), relu(), nn.MaxPool2d(3, 2)),
            *(nn.AdaptiveAvgPool2d(6), nn.Flatten()),
            *(nn.Linear(256 * 6 * 6, 1024), relu(), nn.Linear(1024, 1024), relu()),
            nn.Linear(1024, 3),
        )

    def dataset(self, data, *, train: bool):
        return Pictures(8 if train else 1, 224)


class SlowInChannelsLast(Sgd):
    """Takes longer where pictures come in another order of memory: one node of a job is slow."""

    def loss(self, output, target):
        time.sleep(len(output) * 0.0005)
        return super().loss(output, target)

    def model(self):
        model = super().model()
        model[0].register_forward_pre_hook(_sleep_in_channels_last)
        return model


def _sleep_in_channels_last(_, inputs):
    (pictures,) = inputs
    if pictures.is_contiguous(memory_format=torch.channels_last):
        time.sleep(len(pictures) * 0.002)


class TiedModel(nn.Module):
    """Two layers with one weight, a frozen layer, and a layer that no step uses."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(192, 16)
        self.second = nn.Linear(16, 16, bias=False)
        self.third = nn.Linear(16, 16)
        self.third.weight = self.second.weight
        self.frozen = nn.Linear(16, 16).requires_grad_(False)
        self.unused = nn.Linear(4, 4)
        self.last = nn.Linear(16, 3)

    def forward(self, pictures):
        hidden = torch.tanh(self.first(pictures.flatten(1)))
        hidden = torch.tanh(self.third(torch.tanh(self.second(hidden))))
        return self.last(torch.tanh(self.frozen(hidden)))


class Tied(Sgd):
    def model(self):
        return TiedModel()

    def layers(self, model):
        parts = (model.first, model.second, model.third, model.frozen)
        pairs = [layer for part in parts for layer in (part, nn.Tanh())]
        return nn.Sequential(nn.Flatten(), *pairs, model.last)


class DecayedRest(Tied):
    """Weights that no gradient reaches stay, which decay would change; its last batch is one."""

    def dataset(self, data, *, train: bool):
        return Pictures(17 if train else 1)

    def optimizer(self, parameters):
        return torch.optim.AdamW(parameters, lr=0.002, weight_decay=0.5)


class Levels(nn.Module):
    """Rounds every value to one of eight levels."""

    def forward(self, pictures):
        return (pictures.flatten(1) * 2).round().clamp(-4, 3).long() + 4


class Sparse(Sgd):
    """An embedding with a sparse gradient."""

    def model(self):
        return nn.Sequential(
            Levels(), nn.Embedding(8, 4, sparse=True), nn.Flatten(), nn.Linear(768, 3)
        )


class ClippedSparse(Sparse):
    """Every step's gradient is longer than this."""

    max_gradient_norm = 0.05


class SparseRows(Sparse):
    """An optimizer that takes sparse gradients and no others."""

    def model(self):
        return nn.Sequential(Levels(), nn.EmbeddingBag(8, 3, mode="mean", sparse=True))

    def optimizer(self, parameters):
        return torch.optim.SparseAdam(parameters, lr=0.01)


class TwoKindsSgd(torch.optim.SGD):
    """Goes twice as far where a gradient is sparse; a subclass, of which nobody knows anything."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    factor = 2 if parameter.grad.is_sparse else 1
                    parameter.add_(parameter.grad, alpha=-factor * group["lr"])


class SparseSteps(Sparse):
    """An optimizer that takes sparse gradients in a way of its own."""

    def optimizer(self, parameters):
        return TwoKindsSgd(parameters, lr=0.05)


class Normed(Sgd):
    """Keeps running statistics, each worker of its own share."""

    def model(self):
        return nn.Sequential(
            nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(216, 3)
        )


class MeanAnew(nn.Module):
    """Keeps a running mean of its input, each time in another tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(192))

    def forward(self, inputs):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * inputs.detach().mean(0)
        return inputs - self.mean


class PutsBuffers(Sgd):
    """Its step puts another tensor in the place of a buffer."""

    def model(self):
        return nn.Sequential(nn.Flatten(), MeanAnew(), nn.Linear(192, 3))


class Unfilled(nn.Module):
    """Keeps a row for each sample that a share has fewer than eight."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(8, 2))

    def forward(self, inputs):
        if self.training:
            self.rows = inputs.new_zeros(8 - len(inputs), 2)
        return inputs


class UnevenBuffers(Sgd):
    """Its last batch holds five samples: two workers end with buffers of different sizes."""

    def model(self):
        return nn.Sequential(nn.Flatten(), Unfilled(), nn.Linear(192, 3))

    def dataset(self, data, *, train: bool):
        return Pictures(165 if train else 10)


class NormedRest(Normed):
    """Its last batch holds three samples, and each channel one value a sample."""

    def model(self):
        return nn.Sequential(nn.Flatten(), nn.Linear(192, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))

    def dataset(self, data, *, train: bool):
        return Pictures(19 if train else 10)


class Counted(nn.Linear):
    """Counts its calls, in state that is no tensor."""

    calls = 0

    def forward(self, values):
        self.calls += self.training
        return super().forward(values)

    def get_extra_state(self):
        return {"calls": self.calls}

    def set_extra_state(self, state):
        self.calls = state["calls"]


class Counts(Sgd):
    def model(self):
        return nn.Sequential(nn.Flatten(), Counted(192, 3))


class Unsaveable(Counts):
    def model(self):
        model = super().model()
        model[1].calls = object()
        return model


class Turns(nn.Module):
    """Two layers; a step uses the second one where it has as many samples as a full share."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(192, 3)
        self.second = nn.Linear(3, 3)

    def forward(self, pictures):
        hidden = self.first(pictures.flatten(1))
        return self.second(hidden) if len(pictures) >= 4 else hidden


class TakesTurns(Sgd):
    """Its last batch leaves a layer out, which its momentum would move on."""

    def model(self):
        return Turns()

    def dataset(self, data, *, train: bool):
        return Pictures(18 if train else 1)


class NoLayers(Sgd):
    def layers(self, model):
        return None
