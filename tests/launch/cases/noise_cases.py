"""Use cases whose gradient noise can be found by brute force: of each sample by itself."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from launch.use_cases._base import UseCase

SAMPLES = 1024
CLASSES = 3


class Points(torch.utils.data.Dataset):
    """Points around one centre for each class."""

    def __init__(self, size: int) -> None:
        generator = torch.Generator().manual_seed(3)
        self.targets = torch.arange(size) % CLASSES
        centres = torch.randn(CLASSES, 8, generator=generator)
        noise = torch.randn(size, 8, generator=generator)
        self.points = centres[self.targets] + 2 * noise

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int):
        return self.points[index], int(self.targets[index])


class Still(UseCase):
    """A small network that does not learn, so that its noise stays what it is."""

    name = "still"
    default_batch = 16

    def model(self):
        return nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, CLASSES))

    def dataset(self, data, *, train: bool):
        return Points(SAMPLES if train else 8)

    def loss(self, output, target):
        return functional.cross_entropy(output, target)

    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=0.0)


class Learning(Still):
    """The same, which learns."""

    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


class LearningTwiceAsFast(Still):
    """The same with twice the learning rate."""

    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


class ClippedStill(Still):
    """The gradient is cut to a hundredth of its norm, after it was looked at."""

    max_gradient_norm = 0.01


class DoubledStill(Still):
    """Half of the samples count for nothing, the others twice."""

    def loss(self, output, target):
        each = functional.cross_entropy(output, target, reduction="none")
        counts = (target != 0).float()
        return (each * counts).sum() / counts.sum().clamp(min=1)

    def weight(self, batch):
        return float((batch[1] != 0).sum())


class Normalised(Still):
    """With a layer that normalises over the batch."""

    def model(self):
        return nn.Sequential(nn.Linear(8, 12), nn.BatchNorm1d(12), nn.Linear(12, CLASSES))


class WeightsAlone(Still):
    """The biases are frozen."""

    def model(self):
        model = super().model()
        for parameter in model.parameters():
            parameter.requires_grad_(parameter.dim() > 1)
        return model


class WeightsFromTheFirstStepOn(Still):
    """The biases are frozen from the first step on."""

    def step(self, model, batch):
        for parameter in model.parameters():
            parameter.requires_grad_(parameter.dim() > 1)
        return super().step(model, batch)


def true_scale(case: UseCase, seed: int) -> float:
    """Give the noise scale of all samples there are, by the gradient of each of them."""
    torch.manual_seed(seed)
    model = case.model()
    data = case.dataset(None, train=True)
    gradients = []
    for point, target in data:
        model.zero_grad()
        case.loss(model(point[None]), torch.tensor([target])).backward()
        parts = [p.grad.flatten() for p in model.parameters() if p.requires_grad]
        gradients.append(torch.cat(parts).double())
    every = torch.stack(gradients)
    mean = every.mean(0)
    variance = float((every - mean).square().sum()) / (len(every) - 1)
    # The samples are a draw themselves: their mean is off by this much.
    square = float(mean.square().sum()) - variance / len(every)
    return variance / square
