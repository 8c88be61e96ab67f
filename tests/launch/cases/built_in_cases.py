"""Built-in use cases with a handful of samples, whose one step moves weights by their gradient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset

from launch.system.cache import cache_folder
from launch.use_cases.cifar_resnet44 import CifarResnet44
from launch.use_cases.imagefolder import ImageFolder
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


class Folder(OneStep, ImageFolder):
    """Sixteen JPEG files, which `make_pictures` has written before."""

    def __init__(self) -> None:
        super().__init__(_pictures(), size=32)

    def model(self):
        return normalise_alone(super().model())

    def dataset(self, data, *, train: bool):
        # Those for validation: none is mirrored at random.
        return ImageFolder.dataset(self, _pictures(), train=False)


def make_pictures() -> Path:
    """Write sixteen pictures of two classes, and take note of which can be read."""
    generator = np.random.default_rng(0)
    for number in range(16):
        for part in ("train", "val"):
            folder = _pictures() / part / f"class{number % 2}"
            folder.mkdir(parents=True, exist_ok=True)
            pixels = generator.integers(0, 256, (40, 50, 3), np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.jpg")
    Folder().prepare(_pictures(), _Unheard())
    return _pictures()


class _Unheard:
    def progress(self, done: int, total: int, what: str) -> None: ...

    def warning(self, message: str) -> None: ...


def _pictures() -> Path:
    return cache_folder() / "pictures of a test"


class SmallTransformer(OneStep, Transformer):
    def __init__(self) -> None:
        super().__init__(layers=2, width=16, heads=2, context=48)

    def dataset(self, data, *, train: bool):
        pieces = Transformer.dataset(self, None, train=train)
        # Every fifth, so that they differ in length.
        return torch.utils.data.Subset(pieces, range(0, 80 if train else 15, 5))
