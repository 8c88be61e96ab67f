"""Data set of pictures that are decoded once and read by whole batches from a mapped file."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from launch.data.memory_room import memory_room_bytes
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
        is_large: Whether they are more than the memory holds, and are read from the disk each time;
            by default where they take more than half of it.
        forgets: Whether the page cache shall let go of what was read: a few samples of large
            pictures, read again and again, then take as long as all of them do.

    Attributes:
        is_large: Whether the pictures are read from the disk each time.

    Raises:
        UseCaseError: The disk is too small for the pictures, or the cache cannot be written.
    """

    def __init__(
        self, source: Pictures, *, threads: int, is_large: bool | None = None, forgets: bool = False
    ) -> None:
        self.source = source
        self.layout = make_layout(source)
        if is_large is None:
            is_large = self.layout.num_bytes > memory_room_bytes()
        self.is_large = is_large
        self._forgets = forgets and self.is_large
        self._threads = threads
        self._file = PixelFile(self.layout, is_large=self.is_large)
        self._ahead: dict[tuple[int, ...], Future[Tensor]] = {}
        self._is_verified = np.zeros(self.layout.count, dtype=np.bool_)

    def __len__(self) -> int:
        return self.layout.count

    def __getitems__(self, indices: Indices) -> list[Any]:
        """Return a batch as torch's default collation nests it; torch's loader calls this."""
        return make_batch(self.source, self.rows(indices), indices)

    def rows(self, samples: Indices) -> Tensor:
        """Copy pictures as rows of uint8."""
        if self.is_large:
            ahead = self._ahead.pop(tuple(samples), None)
            return self._read(samples) if ahead is None else ahead.result()
        self.fill(samples)
        return self._file.pixels.index_select(0, torch.tensor(samples, dtype=torch.int64))

    @property
    def sample_bytes(self) -> int:
        """Size of a picture on the disk."""
        return self.layout.picture_bytes

    def will_need(self, samples: Sequence[int]) -> None:
        """Begin to read pictures from the disk."""
        self._file.will_need(samples)

    def read_ahead(self, samples: Indices, pool: Executor) -> None:
        """Read pictures by a thread of a pool, for `rows` to give them."""
        while len(self._ahead) > 1:  # the batch before this one may still be asked for
            self._ahead.pop(next(iter(self._ahead)))
        self._ahead[tuple(samples)] = pool.submit(self._read, samples)

    def _read(self, samples: Indices) -> Tensor:
        """Read pictures from the disk, and decode those that are missing or damaged."""
        rows = self._file.read(samples)
        wrong = []
        for place, index in enumerate(samples):
            if self._is_verified[index]:
                continue
            if self._file.is_stored(index) and self._file.is_undamaged(index, rows[place].numpy()):
                self._is_verified[index] = True
            else:
                wrong.append(place)
        if wrong:
            missing = [samples[place] for place in wrong]
            self.fill(missing)
            rows[wrong] = self._file.read(missing)
        if self._forgets:
            self._file.forget(samples)
        return rows

    def fill(self, samples: Sequence[int]) -> None:
        """Decode those of these pictures that are missing or damaged.

        Raises:
            UseCaseError: A picture cannot be read, or does not have the promised shape.
        """
        wanted = np.asarray(samples, dtype=np.int64)
        unknown = np.unique(wanted[~self._is_verified[wanted]])
        if not unknown.size:
            return
        indices, threads = unknown.tolist(), min(self._threads, unknown.size)
        if threads == 1:
            for index in indices:
                self._ensure_decoded(index)
        else:
            # Threads do: Pillow lets others run while it decodes.
            pool = ThreadPoolExecutor(threads, "decode")
            try:
                for _ in pool.map(self._ensure_decoded, indices):
                    pass
            finally:
                pool.shutdown(cancel_futures=True)
        self._is_verified[unknown] = True
        if self._forgets:
            self._file.sync()
            self._file.forget(indices)

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
