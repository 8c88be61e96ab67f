"""Mapped file of decoded pictures, which all workers of a node read and fill.

The file has its full size from the start and fills in any order. Every picture has a checksum,
which is written after its pixels: 0 says that it is not there yet. So a process may be killed at
any moment, two may write the same picture, and what a disk or a crash has damaged is found out.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import warnings
import weakref
import zlib
from collections.abc import Sequence
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
_PIECE_BYTES = 128 << 10


class PixelFile:
    """The pictures of one data set and split; makes the file where there is none.

    Args:
        layout: Of the file.
        is_large: Whether it is more than the memory holds. Then pictures are read, each by itself:
            of a map, the kernel fetches page by page, or megabytes around a page.

    Attributes:
        pixels: uint8, one row per picture, height x width x channels in each. Read only; a row
            is undefined until `is_valid` returns True.

    Raises:
        UseCaseError: The disk is too small, or the cache cannot be written.
    """

    pixels: Tensor

    def __init__(self, layout: PixelLayout, *, is_large: bool = False) -> None:
        self._layout = layout
        self._is_large = is_large
        try:
            self._descriptor = _open_or_make(layout)
        except OSError as error:
            raise make_cache_write_error(layout.file.parent, error) from error
        weakref.finalize(self, os.close, self._descriptor)
        if is_large:
            os.posix_fadvise(self._descriptor, layout.pixels_offset, 0, os.POSIX_FADV_RANDOM)
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
        if not self.is_stored(index):
            return False
        picture = self.read([index]).numpy()[0] if self._is_large else self._rows[index]
        return self.is_undamaged(index, picture)

    def is_stored(self, index: int) -> bool:
        """Whether a picture was written: nothing is read for that."""
        return bool(self._checksums[index] != 0)

    def is_undamaged(self, index: int, picture: NDArray[np.uint8]) -> bool:
        """Whether these are the pixels that were written."""
        return int(self._checksums[index]) == _checksum(picture)

    def read(self, samples: Sequence[int]) -> Tensor:
        """Copy pictures as rows, from the page cache or from the disk.

        Raises:
            UseCaseError: Another program has cut the file short.
        """
        rows = np.empty((len(samples), self._layout.picture_bytes), np.uint8)
        for row, index in zip(rows, samples, strict=True):
            left, offset = row.data, self._offset(index)
            while left:
                count = os.preadv(self._descriptor, [left], offset)
                if count == 0:
                    raise UseCaseError(
                        f"{self._layout.file} was cut short while it was read: start again, which "
                        "makes it anew"
                    )
                left, offset = left[count:], offset + count
        return torch.from_numpy(rows)

    def will_need(self, samples: Sequence[int]) -> None:
        """Begin to read pictures into the page cache, if they were written."""
        for index in filter(self.is_stored, samples):
            end = self._offset(index + 1)
            # In pieces: of one call the kernel reads no more than a disk takes at once.
            for start in range(self._offset(index), end, _PIECE_BYTES):
                length = min(_PIECE_BYTES, end - start)
                os.posix_fadvise(self._descriptor, start, length, os.POSIX_FADV_WILLNEED)

    def forget(self, samples: Sequence[int]) -> None:
        """Let the page cache go of pictures that are on the disk."""
        for index in samples:
            offset, size = self._offset(index), self._layout.picture_bytes
            os.posix_fadvise(self._descriptor, offset, size, os.POSIX_FADV_DONTNEED)

    def sync(self) -> None:
        """Write what is in the page cache alone to the disk."""
        os.fdatasync(self._descriptor)

    def _offset(self, index: int) -> int:
        return self._layout.pixels_offset + index * self._layout.picture_bytes

    def write(self, index: int, pixels: NDArray[np.uint8]) -> None:
        """Store a picture for all processes.

        Raises:
            UseCaseError: The cache cannot be written.
        """
        layout = self._layout
        picture = np.ascontiguousarray(pixels).reshape(-1)
        checksum = np.array([_checksum(picture)], _CHECKSUM)
        try:
            _write(self._descriptor, picture, self._offset(index))
            _write(self._descriptor, checksum, layout.checksums_offset + index * CHECKSUM_BYTES)
        except OSError as error:
            raise make_cache_write_error(layout.file.parent, error) from error


def _open_or_make(layout: PixelLayout) -> int:
    """Open the file; all processes that call this get the same one."""
    make_folder(layout.file.parent)
    descriptor = _open(layout)
    if descriptor is not None:
        return descriptor
    with cache_lock(layout.file_prefix):
        descriptor = _open(layout)
        if descriptor is not None:  # another process made it while this one waited
            return descriptor
        _remove_unused(layout.file_prefix)
        if shortage := find_disk_shortage([layout]):
            raise UseCaseError(
                f"{shortage}: make room there, set DDLPLAN_CACHE to a folder elsewhere, or use a "
                "plan with input=files"
            )
        return _make(layout)


def _open(layout: PixelLayout) -> int | None:
    """Open the file if it is there, and show for as long as it is open that it is in use."""
    descriptor = layout.open()
    if descriptor is not None:
        _show_use(descriptor)
        if not layout.file.exists():  # removed before that
            os.close(descriptor)
            return None
    return descriptor


def _show_use(descriptor: int) -> None:
    with contextlib.suppress(OSError):  # where there are no locks, it may be removed all the same
        fcntl.flock(descriptor, fcntl.LOCK_SH)


def _remove_unused(prefix: Path) -> None:
    """Remove files of an older key, and what was left by a process that was killed in `_make`.

    What somebody has open stays until a later call: hosts that share the cache may each have
    pictures of their own under one path, and a file server does not go on to give a removed file.
    """
    for old in prefix.parent.glob(f"{prefix.name}-*"):
        with contextlib.suppress(OSError):  # among others, that it is in use
            descriptor = os.open(old, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                old.unlink()
            finally:
                os.close(descriptor)


def _make(layout: PixelLayout) -> int:
    descriptor, name = mkstemp(
        dir=layout.file.parent, prefix=f"{layout.file_prefix.name}-new-"
    )  # 0600
    try:
        # Allocate all of it now: a disk that is full later then does no harm.
        os.posix_fallocate(descriptor, 0, layout.num_bytes)
        _write(descriptor, np.frombuffer(layout.header, np.uint8), 0)
        _show_use(descriptor)
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
