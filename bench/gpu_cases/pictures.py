"""Generated pictures: a few of random pixels, again and again, each with its class."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

_DIFFERENT = 64


class GeneratedPictures(Dataset[tuple[Tensor, int]]):
    """Square pictures in colour, each mirrored half of the time.

    They need no decoding, so a loop that reads them in processes of its own is not held up by that.

    Args:
        samples: How many there seem to be.
        size: Height and width.
        classes: Of which each picture has one.
    """

    def __init__(self, samples: int, size: int, classes: int) -> None:
        self._key = f"{samples} {size} {classes}"
        self._samples, self._size, self._classes = samples, size, classes
        dice = np.random.default_rng(0)
        self._pool = dice.integers(0, 256, (_DIFFERENT, size, size, 3), dtype=np.uint8)

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        pixels = torch.from_numpy(self.pixels(index)).permute(2, 0, 1)[None]
        return self.finish(pixels, self.draw(1))[0], self.target(index)

    def pixels_name(self) -> str:
        return f"generated {self._key}"

    def pixels_key(self) -> str:
        return self._key

    def pixel_shape(self) -> tuple[int, int, int]:
        return self._size, self._size, 3

    def pixels(self, index: int) -> NDArray[np.uint8]:
        pixels: NDArray[np.uint8] = self._pool[index % _DIFFERENT]
        return pixels

    def target(self, index: int) -> int:
        return index % _DIFFERENT % self._classes

    def draw(self, count: int) -> Tensor:
        return torch.rand(count) < 0.5

    def finish(self, pixels: Tensor, drawn: Tensor) -> Tensor:
        mirrored = torch.where(drawn[:, None, None, None], pixels.flip(3), pixels)
        return mirrored.float().sub_(127.5).div_(64.0)
