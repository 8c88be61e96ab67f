"""Use case that waits for its input: a sample takes 4 ms to come, and next to nothing to train."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD
from torch.utils.data import Dataset

from launch.use_cases._base import UseCase

SAMPLE_S = 0.004
_FEATURES, _CLASSES = 64, 2


class Waits(Dataset[tuple[Tensor, int]]):
    """Samples that take a set time, and no processor, as if a network sent them.

    Args:
        samples: How many.
    """

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._features = torch.randn(_FEATURES, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        time.sleep(SAMPLE_S)
        return self._features, index % _CLASSES


class SlowSamples(UseCase):
    """A single linear layer.

    ``--data`` is a folder whose file ``samples`` says how many training samples there are.
    """

    name = "slow-samples"
    default_batch = 32

    def model(self) -> nn.Linear:
        """Give the layer."""
        return nn.Linear(_FEATURES, _CLASSES)

    def dataset(self, data: Path | None, *, train: bool) -> Waits:
        """Give the samples; there is nothing to validate on."""
        assert data is not None
        return Waits(int((data / "samples").read_text()) if train else 0)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Give the cross entropy."""
        return cross_entropy(output, target)

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> SGD:
        """Give plain SGD."""
        return SGD(parameters, lr=0.01)
