"""Built-in use cases with a handful of samples, whose one step moves weights by their gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from launch.use_cases.cifar_resnet44 import CifarResnet44
from launch.use_cases.mnist_cnn import MnistCnn
from launch.use_cases.mnist_resnet18 import MnistResnet18
from launch.use_cases.transformer import Transformer


class Images(Dataset[Any]):
    """Random images of ten classes."""

    def __init__(self, count: int, *shape: int) -> None:
        generator = torch.Generator().manual_seed(count)
        self._images = torch.randn(count, *shape, generator=generator)

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self._images[index], index % 10


class OneStep:
    """Of sixteen samples."""

    shape: tuple[int, ...] = ()

    def dataset(self, data, *, train: bool):
        return Images(16 if train else 3, *self.shape)

    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=1.0)


class Cnn(OneStep, MnistCnn):
    shape = (1, 28, 28)


class Resnet18(OneStep, MnistResnet18):
    shape = (1, 28, 28)


class Resnet44(OneStep, CifarResnet44):
    shape = (3, 32, 32)

    def schedule(self, optimizer, steps_per_epoch: int, epochs: int):
        return None


def normalise_alone(module: nn.Module) -> nn.Module:
    """Replace BatchNorm, which knows the other samples of its part of a batch, by GroupNorm."""
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, nn.GroupNorm(4, child.num_features))
        else:
            normalise_alone(child)
    return module


class Resnet18Alone(Resnet18):
    def model(self):
        return normalise_alone(super().model())


class Resnet44Alone(Resnet44):
    def model(self):
        return normalise_alone(super().model())


class SmallTransformer(OneStep, Transformer):
    def __init__(self) -> None:
        super().__init__(layers=2, width=16, heads=2, context=48)

    def dataset(self, data, *, train: bool):
        pieces = Transformer.dataset(self, None, train=train)
        # Every fifth, so that they differ in length.
        return torch.utils.data.Subset(pieces, range(0, 80 if train else 15, 5))
