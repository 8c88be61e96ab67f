"""Data set of small images: normalised, and for training cropped and mirrored at random."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.data import Dataset

from launch.data.images.normalisation import flip_and_normalise
from launch.use_cases._small_images.labelled_images import ImageSet


class SmallImages(Dataset[tuple[Tensor, int]]):
    """Small images as tensors, channels x height x width, each with the number of its class.

    One of `launch.data.pictures.Pictures`.

    Attributes:
        is_generated: Whether the images are made up.

    Args:
        images: The set.
        train: Its training or its test part.
        mean: Mean of each channel, of values from 0 to 1.
        deviation: Standard deviation of each channel.
        padding: Pixels of black that are put around a training image before a piece of its own
            size is cut out at random and mirrored or not; 0 leaves images as they are.
        most: Take the first so many images; ``None`` takes all.

    Raises:
        UseCaseError: The set was not prepared.
    """

    def __init__(
        self,
        images: ImageSet,
        *,
        train: bool,
        mean: Sequence[float],
        deviation: Sequence[float],
        padding: int = 0,
        most: int | None = None,
    ) -> None:
        opened = images.open(train=train)
        self.is_generated = images.is_generated
        self._pixels = opened.pixels[:most]
        self._targets = opened.labels[:most].tolist()
        part = ("train" if train else "test") + ("" if most is None else f", first {most}")
        self._about = f"{images.name} {part}", images.key
        self._mean, self._deviation = mean, deviation
        self._padding = padding if train else 0

    def __len__(self) -> int:
        return len(self._targets)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Tensor, int]]:
        """Return a batch of samples; torch's loader calls this."""
        pixels = torch.from_numpy(self._pixels[indices]).permute(0, 3, 1, 2).contiguous()
        images = self.finish(pixels, self.draw(len(indices)))
        return [(image, self._targets[i]) for image, i in zip(images, indices, strict=True)]

    def pixels_name(self) -> str:
        return self._about[0]

    def pixels_key(self) -> str:
        return self._about[1]

    def pixel_shape(self) -> tuple[int, int, int]:
        _, height, width, channels = self._pixels.shape
        return height, width, channels

    def pixels(self, index: int) -> NDArray[np.uint8]:
        pixels: NDArray[np.uint8] = self._pixels[index]
        return pixels

    def target(self, index: int) -> int:
        return int(self._targets[index])

    def draw(self, count: int) -> Tensor | None:
        # Of each image: row, column, mirrored or not. One call for many draws the same numbers as
        # many calls for one.
        return torch.rand(count, 3) if self._padding else None

    def finish(self, pixels: Tensor, drawn: Tensor | None) -> Tensor:
        if drawn is None:
            return flip_and_normalise(pixels, None, self._mean, self._deviation)
        places = (drawn[:, :2] * (2 * self._padding + 1)).long()
        cropped = _crop(pixels, places, self._padding)
        return flip_and_normalise(cropped, drawn[:, 2] < 0.5, self._mean, self._deviation)


def _crop(pixels: Tensor, places: Tensor, padding: int) -> Tensor:
    """Cut a piece of its own size out of each padded image; the strides stay.

    Args:
        pixels: uint8, samples x channels x height x width.
        places: First row and column of each piece in its padded image.
        padding: Black pixels on each side.
    """
    count, channels, height, width = pixels.shape
    device = pixels.device
    padded = pad(pixels, [padding] * 4)
    rows = places[:, :1] + torch.arange(height, device=device)
    columns = places[:, 1:] + torch.arange(width, device=device)
    pieces = padded[
        torch.arange(count, device=device).view(-1, 1, 1, 1),
        torch.arange(channels, device=device).view(1, -1, 1, 1),
        rows.view(count, 1, height, 1),
        columns.view(count, 1, 1, width),
    ]
    is_last = pixels.is_contiguous(memory_format=torch.channels_last)
    return pieces.contiguous(
        memory_format=torch.channels_last if is_last else torch.contiguous_format
    )
