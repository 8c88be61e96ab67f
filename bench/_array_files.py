"""Use case whose samples are files of their own, and whose steps take a time that is known."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

SAMPLE_S = 0.004
"""That a step takes for each sample, asleep: the reading is measured, not the computing."""

SHAPE = (3, 208, 208)
_VALIDATION = 16


class ArrayFiles:
    """Arrays of a folder, a file for each sample."""

    name = "array-files"
    default_batch = 32

    def model(self) -> nn.Module:
        return nn.Sequential(nn.AvgPool2d(104), nn.Flatten(), nn.Linear(12, 2))

    def dataset(self, data: Path | None, *, train: bool) -> torch.utils.data.Dataset[Any]:
        assert data is not None, "its files are made by the bench"
        files = sorted(data.glob("*/*.npy"))
        return _Arrays(files[_VALIDATION:] if train else files[:_VALIDATION])

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            time.sleep(SAMPLE_S * len(output))
        return functional.cross_entropy(output, target)

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.01)


class _Arrays(torch.utils.data.Dataset[Any]):
    def __init__(self, files: list[Path]) -> None:
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.from_numpy(np.load(self._files[index])).float() / 255, index % 2


def write_files(folder: Path, count: int) -> None:
    """Write so many arrays, a hundred in each folder."""
    generator = np.random.default_rng(0)
    for number in range(count):
        part = folder / f"{number // 100:04}"
        part.mkdir(parents=True, exist_ok=True)
        np.save(part / f"{number:06}.npy", generator.integers(0, 256, SHAPE, np.uint8))
