"""How is a data set read whose pictures are decoded once? By whole batches, from a mapped file."""

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
    """A data set of pictures, each decoded when it is first asked for, by whichever process.

    Args:
        source: The data set.
        threads: Pictures decoded at once. Threads run for as long as a call only.

    Raises:
        UseCaseError: There is too little room for the pictures, or the cache cannot be written.
    """

    def __init__(self, source: Pictures, *, threads: int) -> None:
        self.source = source
        self.layout = layout_of(source)
        self._threads = threads
        self._file = PixelFile(self.layout)
        self._is_known = np.zeros(self.layout.count, dtype=np.bool_)

    def __len__(self) -> int:
        return self.layout.count

    def __getitems__(self, indices: Indices) -> list[Any]:
        """Give a batch as torch's default collation nests it; torch's loader calls this."""
        return as_batch(self.source, self.rows(indices), indices)

    def rows(self, samples: Indices) -> Tensor:
        """Give pictures as rows of uint8, a copy."""
        self.fill(samples)
        return self._file.pixels.index_select(0, torch.tensor(samples, dtype=torch.int64))

    def fill(self, samples: Sequence[int]) -> None:
        """See to it that these pictures are there and sound; decode those that are not.

        Raises:
            UseCaseError: A picture cannot be read, or does not have the promised shape.
        """
        wanted = np.asarray(samples, dtype=np.int64)
        unknown = np.unique(wanted[~self._is_known[wanted]])
        if not unknown.size:
            return
        threads = min(self._threads, unknown.size)
        if threads == 1:
            for index in unknown:
                self._make_sure(int(index))
        else:
            self._make_all_sure(unknown.tolist(), threads)
        self._is_known[unknown] = True

    def _make_all_sure(self, samples: Indices, threads: int) -> None:
        # Threads do: Pillow lets others run while it decodes.
        pool = ThreadPoolExecutor(threads, "decode")
        try:
            for _ in pool.map(self._make_sure, samples):
                pass
        finally:
            pool.shutdown(cancel_futures=True)

    def _make_sure(self, index: int) -> None:
        if self._file.is_sound(index):
            return
        pixels = np.asarray(self.source.pixels(index))
        if pixels.dtype != np.uint8 or pixels.shape != self.layout.shape:
            raise UseCaseError(
                f"pixels({index}) gave {pixels.dtype} of shape {pixels.shape} and pixel_shape() "
                f"is {self.layout.shape}: give uint8 of one shape for every sample"
            )
        self._file.write(index, pixels)


def layout_of(source: Pictures) -> PixelLayout:
    """Say what file the pictures of a data set are kept in."""
    height, width, channels = source.pixel_shape()
    return PixelLayout(
        name=source.pixels_name(),
        key=source.pixels_key(),
        shape=(height, width, channels),
        count=len(source),
    )


def as_batch(source: Pictures, rows: Tensor, samples: Indices) -> list[Any]:
    """Put rows of pixels together with what is drawn for them and with their targets."""
    height, width, channels = source.pixel_shape()
    # The channels of a pixel lie side by side, as channels_last has them.
    pixels = rows.view(-1, height, width, channels).permute(0, 3, 1, 2)
    targets = default_collate([source.target(index) for index in samples])
    return [RawPictures(pixels, source.draw(len(samples)), source.finish), targets]
