"""Data that are uneven, decoded once, nested, random or slow."""

from __future__ import annotations

import random
import time
import weakref

import numpy
import torch
from torch import nn

from tiny.base import Pictures, Sgd


class Uneven(Sgd):
    """The last batch leaves one worker without a sample."""

    def dataset(self, data, *, train: bool):
        return Pictures(17 if train else 1)


class Rests(Sgd):
    """Of batches of 16 an epoch has one, and a rest in which the first of two nodes has none."""

    def dataset(self, data, *, train: bool):
        return Pictures(19 if train else 1)


class Decodable(torch.utils.data.Dataset):
    """Pictures that may be decoded once, mirrored at random: see launch/data/pictures.py."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int):
        pixels = torch.from_numpy(self.pixels(index)).permute(2, 0, 1)[None]
        return self.finish(pixels, self.draw(1))[0], self.target(index)

    def pixels_name(self) -> str:
        return self._name

    def pixels_key(self) -> str:
        return "1"

    def pixel_shape(self):
        return 8, 8, 3

    def pixels(self, index: int):
        return numpy.random.default_rng(index).integers(0, 256, (8, 8, 3), dtype=numpy.uint8)

    def target(self, index: int) -> int:
        return index % 3

    def draw(self, count: int):
        return torch.rand(count) < 0.5

    def finish(self, pixels, drawn):
        mirrored = drawn.view(-1, 1, 1, 1)
        return torch.where(mirrored, pixels.flip(3), pixels) / 255 - 0.5


class Decoded(Sgd):
    def dataset(self, data, *, train: bool):
        size = 45 if train else 10
        return Decodable(size, f"tiny {size}")


class DecodedInTraining(Decoded):
    """Only the training samples can be decoded once."""

    def dataset(self, data, *, train: bool):
        return super().dataset(data, train=True) if train else Pictures(10)


class Undecodable(Decoded):
    """A sample cannot be decoded."""

    def dataset(self, data, *, train: bool):
        dataset = Decodable(45 if train else 10, "of its own: the cache must not have them")
        dataset.pixels = self.fail
        return dataset

    def fail(self, index: int):
        raise OSError(f"sample {index} is gone")


class Numbered(Pictures):
    """Targets are a class and the number of the sample."""

    def __getitem__(self, index: int):
        picture, target = super().__getitem__(index)
        return picture, {"class": target, "number": index}


class NestedTargets(Sgd):
    def dataset(self, data, *, train: bool):
        return Numbered(160 if train else 10)

    def loss(self, output, target):
        return super().loss(output, target["class"])

    def metrics(self, output, target):
        return {}


class ForgetsPictures(Sgd):
    """Fails where the pictures of one micro-batch are kept while the next one is computed."""

    _last = None

    def step(self, model, batch):
        pictures, targets = batch
        if torch.is_grad_enabled():  # not in validation
            assert self._last is None or self._last() is None, "the last pictures are still there"
            self._last = weakref.ref(pictures)
        return self.loss(model(pictures), targets)

    def metrics(self, model, batch):
        return {}


class OpaqueTargets(Sgd):
    """Its targets are bytes, which the collation keeps."""

    def dataset(self, data, *, train: bool):
        return OpaquePictures(160 if train else 10)


class OpaquePictures(Pictures):
    def __getitem__(self, index: int):
        return super().__getitem__(index)[0], b"class"


class Shaken(Pictures):
    """Each sample is moved at random, by all the generators that there are."""

    def __getitem__(self, index: int):
        picture, target = super().__getitem__(index)
        return picture + torch.rand(1) + numpy.random.rand() + random.random(), target


class Random(Sgd):
    """Dropout, samples that differ whenever they are read, and an optimizer that has a state."""

    def model(self):
        return nn.Sequential(
            nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3)
        )

    def dataset(self, data, *, train: bool):
        return Shaken(160) if train else Pictures(10)

    def optimizer(self, parameters):
        return torch.optim.AdamW(parameters, lr=0.002)


class SlowPictures(Pictures):
    """Pictures each of which takes a while to read."""

    def __getitem__(self, index: int):
        time.sleep(0.004)
        return super().__getitem__(index)


class SlowInput(Sgd):
    """Waits for its samples."""

    def dataset(self, data, *, train: bool):
        return SlowPictures(160 if train else 10)
