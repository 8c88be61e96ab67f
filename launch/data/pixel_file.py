"""Mapped file of decoded pictures, which all workers of a node read and fill.

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

from launch.data.disk_space import find_disk_shortage
from launch.data.pixel_layout import CHECKSUM_BYTES, PixelLayout
from launch.errors import UseCaseError
from launch.system.cache import cache_lock, make_cache_write_error, make_folder

_CHECKSUM = np.dtype(f"<u{CHECKSUM_BYTES}")


class PixelFile:
    """The pictures of one data set and split; makes the file where there is none.

    Attributes:
        pixels: uint8, one row per picture, height x width x channels in each. Read only; a row
            is undefined until `is_valid` returns True.

    Raises:
        UseCaseError: The disk is too small, or the cache cannot be written.
    """

    pixels: Tensor

    def __init__(self, layout: PixelLayout) -> None:
        self._layout = layout
        try:
            self._descriptor = _open_or_make(layout)
        except OSError as error:
            raise make_cache_write_error(layout.file.parent, error) from error
        weakref.finalize(self, os.close, self._descriptor)
        # Read only: a stray write ends the process instead of damaging what others train on.
        # Pictures are written by pwrite, which raises an error for what would be SIGBUS in a map.
        mapped = mmap.mmap(self._descriptor, layout.num_bytes, prot=mmap.PROT_READ)
        self._checksums = np.frombuffer(
            mapped, _CHECKSUM, layout.count, offset=layout.checksums_offset
        )
        self._rows: NDArray[np.uint8] = np.frombuffer(
            mapped, np.uint8, offset=layout.pixels_offset
        ).reshape(layout.count, layout.picture_bytes)
        with warnings.catch_warnings():  # torch warns of memory that is not writable
            warnings.simplefilter("ignore", UserWarning)
            self.pixels = torch.from_numpy(self._rows)

    def is_valid(self, index: int) -> bool:
        """Whether a picture is stored and undamaged: its pixels are read for that."""
        checksum = int(self._checksums[index])
        return checksum != 0 and checksum == _checksum(self._rows[index])

    def write(self, index: int, pixels: NDArray[np.uint8]) -> None:
        """Store a picture for all processes.

        Raises:
            UseCaseError: The cache cannot be written.
        """
        layout = self._layout
        picture = np.ascontiguousarray(pixels).reshape(-1)
        checksum = np.array([_checksum(picture)], _CHECKSUM)
        try:
            _write(self._descriptor, picture, layout.pixels_offset + index * layout.picture_bytes)
            _write(self._descriptor, checksum, layout.checksums_offset + index * CHECKSUM_BYTES)
        except OSError as error:
            raise make_cache_write_error(layout.file.parent, error) from error


def _open_or_make(layout: PixelLayout) -> int:
    """Open the file; all processes that call this get the same one."""
    make_folder(layout.file.parent)
    descriptor = layout.open()
    if descriptor is not None:
        return descriptor
    with cache_lock(layout.file_prefix):
        descriptor = layout.open()
        if descriptor is not None:  # another process made it while this one waited
            return descriptor
        # Files of an older key, and what was left by a process that was killed right here.
        # A process that has one of them open can use it until it closes it.
        for old in layout.file.parent.glob(f"{layout.file_prefix.name}-*"):
            old.unlink(missing_ok=True)
        if shortage := find_disk_shortage([layout]):
            raise UseCaseError(
                f"{shortage}: make room there, set DDLPLAN_CACHE to a folder elsewhere, or use a "
                "plan with input=files"
            )
        return _make(layout)


def _make(layout: PixelLayout) -> int:
    descriptor, name = mkstemp(
        dir=layout.file.parent, prefix=f"{layout.file_prefix.name}-new-"
    )  # 0600
    try:
        # Allocate all of it now: a disk that is full later then does no harm.
        os.posix_fallocate(descriptor, 0, layout.num_bytes)
        _write(descriptor, np.frombuffer(layout.header, np.uint8), 0)
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
