"""The network that most papers on MNIST train, on moved patterns under noise that are in memory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import nll_loss
from torch.optim import SGD
from torch.utils.data import Dataset

from launch.use_cases._base import UseCase

_CLASSES = 10
_SIDE = 28
_JUDGED = 2000
_NOISE = 0.7
_MOVED = 4
"""Pixels by which a pattern is moved at most, each way and around the edge."""


class Patterns(Dataset[tuple[Tensor, int]]):
    """Images of random patterns, one pattern for each class.

    Args:
        samples: How many.
        seed: Of what is drawn; the patterns are the same for all.
    """

    def __init__(self, samples: int, seed: int) -> None:
        coarse = torch.randn(_CLASSES, 1, 7, 7, generator=torch.Generator().manual_seed(0))
        patterns = nn.functional.interpolate(coarse, size=(_SIDE, _SIDE), mode="bilinear")
        generator = torch.Generator().manual_seed(seed)
        self._labels = torch.randint(_CLASSES, (samples,), generator=generator)
        moves = torch.randint(-_MOVED, _MOVED + 1, (samples, 2), generator=generator).tolist()
        self._images = torch.stack(
            [
                patterns[label].roll(move, (1, 2))
                for label, move in zip(self._labels.tolist(), moves, strict=True)
            ]
        )
        self._images += _NOISE * torch.randn(self._images.shape, generator=generator)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self._images[index], int(self._labels[index])


class PatternsInMemory(UseCase):
    """Two convolutions and two linear layers, 431,080 parameters, SGD at 0.01.

    ``--data`` is a folder whose file ``samples`` says how many training samples there are.
    """

    name = "patterns-in-memory"
    default_batch = 32

    def model(self) -> nn.Sequential:
        """Give the network of the use case `mnist_cnn`."""
        return nn.Sequential(
            *(nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(1), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, _CLASSES)),
            nn.LogSoftmax(1),
        )

    def dataset(self, data: Path | None, *, train: bool) -> Patterns:
        """Give the images."""
        assert data is not None
        return Patterns(int((data / "samples").read_text()) if train else _JUDGED, int(train))

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Give the negative log-likelihood."""
        return nll_loss(output, target)

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> SGD:
        """Give plain SGD."""
        return SGD(parameters, lr=0.01)

    def metrics(self, output: Tensor, target: Tensor) -> dict[str, float]:
        """Give the part that is right."""
        return {"accuracy": (output.argmax(1) == target).float().mean().item()}
