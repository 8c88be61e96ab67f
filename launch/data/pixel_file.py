"""Where are decoded pictures kept? In a mapped file that every worker of a node reads and fills.

The file has its full size from the start and fills in any order. Every picture has a checksum,
which is written after its pixels: 0 says that it is not there yet. So a process may be killed at
any moment, two may write the same picture, and what a disk or a crash has damaged is found out.
"""

from __future__ import annotations

import json
import mmap
import os
import warnings
import weakref
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from math import prod
from pathlib import Path
from tempfile import mkstemp

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from launch.cache import cache_folder, make_folder, not_writable, only_one
from launch.errors import UseCaseError

VERSION = 1
"""Goes up with every change to the layout of the file."""

_PAGE = 4096
_CHECKSUM = np.dtype("<u4")
_KEPT_FREE_BYTES = 1 << 30
_KEPT_FREE_SHARE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class PixelLayout:
    """Which pictures a file holds, and what lies where: head, checksums, pixels."""

    name: str
    """Of the data set and its split."""

    key: str
    """Changes when any pixel may have."""

    shape: tuple[int, int, int]
    """Height, width and channels of each picture."""

    count: int

    @property
    def picture_bytes(self) -> int:
        """Size of one picture."""
        return prod(self.shape)

    @property
    def pixels_at(self) -> int:
        """Offset of the first picture."""
        return _PAGE + -(-self.count * _CHECKSUM.itemsize // _PAGE) * _PAGE

    @property
    def num_bytes(self) -> int:
        """Size of the file."""
        return self.pixels_at + self.count * self.picture_bytes

    @property
    def head(self) -> bytes:
        """The first page: whoever finds another one there has another file before him."""
        about = {"version": VERSION, "key": self._digest, "shape": self.shape, "count": self.count}
        return b"ddlplan pixels " + json.dumps(about).encode().ljust(_PAGE - 16) + b"\n"

    @property
    def family(self) -> Path:
        """Where the files of this data set and split are: what their names begin with."""
        return cache_folder() / "pixels" / _short_hash(self.name)

    @property
    def file(self) -> Path:
        """Where the file is."""
        return self.family.with_name(f"{self.family.name}-{self._digest[:32]}")

    def exists(self) -> bool:
        """Whether the file is there already, with its room on the disk."""
        with suppress(OSError):
            descriptor = _open_sound(self)
            if descriptor is not None:
                os.close(descriptor)
                return True
        return False

    @property
    def _digest(self) -> str:
        return sha256(f"{VERSION}\0{self.key}".encode(errors="surrogateescape")).hexdigest()


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
        self._checksums = np.frombuffer(mapped, _CHECKSUM, layout.count, offset=_PAGE)
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
            _write(self._descriptor, checksum, _PAGE + index * _CHECKSUM.itemsize)
        except OSError as error:
            raise not_writable(layout.file.parent, error) from error


def find_shortage(layouts: Sequence[PixelLayout]) -> str | None:
    """Say by how much the disk is too small for files that are not there yet.

    Returns:
        Bytes needed and bytes free, ``None`` where all have room.

    Raises:
        UseCaseError: The cache cannot be made.
    """
    needed_bytes = sum(layout.num_bytes for layout in layouts if not layout.exists())
    if needed_bytes == 0:
        return None
    folder = make_folder(cache_folder())
    disk = os.statvfs(folder)
    free_bytes = disk.f_bavail * disk.f_frsize
    kept_bytes = int(max(_KEPT_FREE_BYTES, _KEPT_FREE_SHARE * disk.f_blocks * disk.f_frsize))
    if needed_bytes <= free_bytes - kept_bytes:
        return None
    return (
        f"decoded pictures need {needed_bytes} bytes in {folder} and {free_bytes} bytes are free "
        f"there, of which {kept_bytes} stay free"
    )


def _open_or_make(layout: PixelLayout) -> int:
    """Give the descriptor of the file; all processes that call this get the same file."""
    make_folder(layout.file.parent)
    descriptor = _open_sound(layout)
    if descriptor is not None:
        return descriptor
    with only_one(layout.family):
        descriptor = _open_sound(layout)
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


def _open_sound(layout: PixelLayout) -> int | None:
    """Open the file, unless there is none or it is not what it should be."""
    try:
        descriptor = os.open(layout.file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    # To read a map beyond the end of its file would be SIGBUS.
    is_whole = os.fstat(descriptor).st_size == layout.num_bytes
    if is_whole and os.pread(descriptor, _PAGE, 0) == layout.head:
        return descriptor
    os.close(descriptor)
    return None


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


def _short_hash(text: str) -> str:
    return sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]
