"""Data set of pictures that are decoded once and read by whole batches from a mapped file."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from launch.data.pictures import Pictures
from launch.data.pixel_file import PixelFile
from launch.data.pixel_layout import PixelLayout
from launch.data.raw_pictures import RawPictures
from launch.data.split import Indices
from launch.errors import UseCaseError


class DecodedPictures(Dataset[Any]):
    """A data set of pictures, each decoded by the first process that reads it.

    Args:
        source: The data set.
        threads: Pictures decoded at once. Threads run for as long as a call only.

    Raises:
        UseCaseError: The disk is too small for the pictures, or the cache cannot be written.
    """

    def __init__(self, source: Pictures, *, threads: int) -> None:
        self.source = source
        self.layout = make_layout(source)
        self._threads = threads
        self._file = PixelFile(self.layout)
        self._is_verified = np.zeros(self.layout.count, dtype=np.bool_)

    def __len__(self) -> int:
        return self.layout.count

    def __getitems__(self, indices: Indices) -> list[Any]:
        """Return a batch as torch's default collation nests it; torch's loader calls this."""
        return make_batch(self.source, self.rows(indices), indices)

    def rows(self, samples: Indices) -> Tensor:
        """Copy pictures as rows of uint8."""
        self.fill(samples)
        return self._file.pixels.index_select(0, torch.tensor(samples, dtype=torch.int64))

    def fill(self, samples: Sequence[int]) -> None:
        """Decode those of these pictures that are missing or damaged.

        Raises:
            UseCaseError: A picture cannot be read, or does not have the promised shape.
        """
        wanted = np.asarray(samples, dtype=np.int64)
        unknown = np.unique(wanted[~self._is_verified[wanted]])
        if not unknown.size:
            return
        threads = min(self._threads, unknown.size)
        if threads == 1:
            for index in unknown:
                self._ensure_decoded(int(index))
        else:
            self._ensure_all_decoded(unknown.tolist(), threads)
        self._is_verified[unknown] = True

    def _ensure_all_decoded(self, samples: Indices, threads: int) -> None:
        # Threads do: Pillow lets others run while it decodes.
        pool = ThreadPoolExecutor(threads, "decode")
        try:
            for _ in pool.map(self._ensure_decoded, samples):
                pass
        finally:
            pool.shutdown(cancel_futures=True)

    def _ensure_decoded(self, index: int) -> None:
        if self._file.is_valid(index):
            return
        pixels = np.asarray(self.source.pixels(index))
        if pixels.dtype != np.uint8 or pixels.shape != self.layout.shape:
            raise UseCaseError(
                f"pixels({index}) gave {pixels.dtype} of shape {pixels.shape} and pixel_shape() "
                f"is {self.layout.shape}: give uint8 of one shape for every sample"
            )
        self._file.write(index, pixels)


def make_layout(source: Pictures) -> PixelLayout:
    """Make the layout of the file in which the pictures of a data set are stored."""
    height, width, channels = source.pixel_shape()
    return PixelLayout(
        name=source.pixels_name(),
        key=source.pixels_key(),
        shape=(height, width, channels),
        count=len(source),
    )


def make_batch(source: Pictures, rows: Tensor, samples: Indices) -> list[Any]:
    """Combine rows of pixels with what is drawn for them and with their targets."""
    height, width, channels = source.pixel_shape()
    # The channels of a pixel lie side by side, as channels_last has them.
    pixels = rows.view(-1, height, width, channels).permute(0, 3, 1, 2)
    targets = default_collate([source.target(index) for index in samples])
    return [RawPictures(pixels, source.draw(len(samples)), source.finish), targets]
