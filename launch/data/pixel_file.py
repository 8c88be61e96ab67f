"""Where are decoded pictures kept? In a mapped file that every worker of a node reads and fills.

The file has its full size from the start and fills in any order. Every picture has a checksum,
which is written after its pixels: 0 says that it is not there yet. So a process may be killed at
any moment, two may write the same picture, and what a disk or a crash has damaged is found out.
"""

from __future__ import annotations

import mmap
import os
import warnings
import weakref
import zlib
from pathlib import Path
from tempfile import mkstemp

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from launch.cache import make_folder, not_writable, only_one
from launch.data.pixel_layout import CHECKSUM_BYTES, PixelLayout
from launch.data.pixel_room import find_shortage
from launch.errors import UseCaseError

_CHECKSUM = np.dtype(f"<u{CHECKSUM_BYTES}")


class PixelFile:
    """The pictures of one data set and split; made where there is no such file yet.

    Attributes:
        pixels: uint8, one row per picture, height x width x channels in each. Read only; a row
            means nothing before `is_sound` has said so.

    Raises:
        UseCaseError: There is too little room on the disk, or the cache cannot be written.
    """

    pixels: Tensor

    def __init__(self, layout: PixelLayout) -> None:
        self._layout = layout
        try:
            self._descriptor = _open_or_make(layout)
        except OSError as error:
            raise not_writable(layout.file.parent, error) from error
        weakref.finalize(self, os.close, self._descriptor)
        # Read only: a stray write ends the process instead of damaging what others train on.
        # Pictures are written by pwrite, which says in an error what would be SIGBUS in a map.
        mapped = mmap.mmap(self._descriptor, layout.num_bytes, prot=mmap.PROT_READ)
        self._checksums = np.frombuffer(mapped, _CHECKSUM, layout.count, offset=layout.checksums_at)
        self._rows: NDArray[np.uint8] = np.frombuffer(
            mapped, np.uint8, offset=layout.pixels_at
        ).reshape(layout.count, layout.picture_bytes)
        with warnings.catch_warnings():  # torch warns of memory that is not writable
            warnings.simplefilter("ignore", UserWarning)
            self.pixels = torch.from_numpy(self._rows)

    def is_sound(self, index: int) -> bool:
        """Whether a picture is there and is what was written: its pixels are read for that."""
        checksum = int(self._checksums[index])
        return checksum != 0 and checksum == _checksum(self._rows[index])

    def write(self, index: int, pixels: NDArray[np.uint8]) -> None:
        """Keep a picture for everyone.

        Raises:
            UseCaseError: The cache cannot be written.
        """
        layout = self._layout
        picture = np.ascontiguousarray(pixels).reshape(-1)
        checksum = np.array([_checksum(picture)], _CHECKSUM)
        try:
            _write(self._descriptor, picture, layout.pixels_at + index * layout.picture_bytes)
            _write(self._descriptor, checksum, layout.checksums_at + index * CHECKSUM_BYTES)
        except OSError as error:
            raise not_writable(layout.file.parent, error) from error


def _open_or_make(layout: PixelLayout) -> int:
    """Give the descriptor of the file; all processes that call this get the same file."""
    make_folder(layout.file.parent)
    descriptor = layout.open()
    if descriptor is not None:
        return descriptor
    with only_one(layout.family):
        descriptor = layout.open()
        if descriptor is not None:  # another process made it while this one waited
            return descriptor
        # Files of an older key, and what was left by a process that was killed right here.
        # Whoever has one of them open keeps it until he closes it.
        for old in layout.file.parent.glob(f"{layout.family.name}-*"):
            old.unlink(missing_ok=True)
        if shortage := find_shortage([layout]):
            raise UseCaseError(
                f"{shortage}: make room there, set DDLPLAN_CACHE to a folder elsewhere, or use a "
                "plan with input=files"
            )
        return _make(layout)


def _make(layout: PixelLayout) -> int:
    descriptor, name = mkstemp(dir=layout.file.parent, prefix=f"{layout.family.name}-new-")  # 0600
    try:
        # Room for all of it now: a disk that is full later can take none of it away.
        os.posix_fallocate(descriptor, 0, layout.num_bytes)
        _write(descriptor, np.frombuffer(layout.head, np.uint8), 0)
        Path(name).rename(layout.file)
    except BaseException:
        os.close(descriptor)
        Path(name).unlink(missing_ok=True)
        raise
    return descriptor


def _write(descriptor: int, values: NDArray[np.generic], offset: int) -> None:
    left = values.data.cast("B")
    while left:
        written = os.pwrite(descriptor, left, offset)
        left, offset = left[written:], offset + written


def _checksum(picture: NDArray[np.uint8]) -> int:
    return zlib.crc32(picture.data) or 1
