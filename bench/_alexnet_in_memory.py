"""AlexNet on pictures that are in memory, so that nothing but computing and averaging is timed."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

from launch.use_cases.simplebig import SimpleBig

_PICTURES = 64
_CLASSES = 3


class Pictures(Dataset[tuple[Tensor, int]]):
    """A few random pictures, again and again.

    Args:
        samples: How many there seem to be.
    """

    def __init__(self, samples: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self._pictures = torch.randn(min(samples, _PICTURES), 3, 224, 224, generator=generator)
        self._samples = samples

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self._pictures[index % len(self._pictures)], index % _CLASSES


class AlexNetInMemory(SimpleBig):
    """The model, loss and optimizer of `simplebig`.

    ``--data`` is a folder whose file ``samples`` says how many training samples there are.
    """

    name = "alexnet-in-memory"

    def prepare(self, data: Path | None, report: object) -> None:
        """Nothing has to be made."""

    def dataset(  # type: ignore[override] # no photos
        self, data: Path | None, *, train: bool
    ) -> Dataset[tuple[Tensor, int]]:
        """Give the pictures; there is nothing to validate on."""
        assert data is not None
        return Pictures(int((data / "samples").read_text()) if train else 0)
