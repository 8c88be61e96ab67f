"""Use case of many pictures that cost nothing to decode, and whose steps take a set time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

SIDE = 224
COUNT, STEP_S = "BENCH_PICTURES", "BENCH_STEP_S"
"""Environment variables: number of pictures, and seconds of a step."""


class NoisePictures:
    """Pictures of noise, as many as the environment says."""

    name = "noise-pictures"
    default_batch = 64

    def model(self) -> nn.Module:
        return nn.Sequential(nn.AvgPool2d(112), nn.Flatten(), nn.Linear(12, 2))

    def dataset(self, data: Path | None, *, train: bool) -> torch.utils.data.Dataset[Any]:
        return Noise(int(os.environ[COUNT]) if train else 4)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        give_up, matrix = time.perf_counter() + float(os.environ[STEP_S]), torch.ones(256, 256)
        while time.perf_counter() < give_up:  # it computes: reading must find time beside it
            matrix = torch.tanh(matrix @ matrix)
        return functional.cross_entropy(output, target)

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.01)


class Noise(torch.utils.data.Dataset[Any]):
    """Pictures that differ, each the same whoever asks for it."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._noise = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), np.uint8)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        pixels = torch.from_numpy(self.pixels(index)).permute(2, 0, 1)[None]
        return self.finish(pixels, None)[0], self.target(index)

    def pixels_name(self) -> str:
        return f"noise {self._count}"

    def pixels_key(self) -> str:
        return "1"

    def pixel_shape(self) -> tuple[int, int, int]:
        return SIDE, SIDE, 3

    def pixels(self, index: int) -> NDArray[np.uint8]:
        picture = self._noise.copy()
        picture[0, 0, :] = (index >> 16 & 255, index >> 8 & 255, index & 255)
        return picture

    def target(self, index: int) -> int:
        return index % 2

    def draw(self, count: int) -> Tensor | None:
        return None

    def finish(self, pixels: Tensor, drawn: Tensor | None) -> Tensor:
        return pixels.float() / 255
