"""Layout of a file of decoded pictures: header, checksums, pixels."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from hashlib import sha256
from math import prod
from pathlib import Path

from launch.system.cache import cache_folder

VERSION = 1
"""Increases with every change to the layout."""

CHECKSUM_BYTES = 4
_PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class PixelLayout:
    """Layout of one file: the pictures in it, and the offsets of header, checksums and pixels."""

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
    def pixels_offset(self) -> int:
        """Offset of the first picture."""
        return _PAGE_BYTES + -(-self.count * CHECKSUM_BYTES // _PAGE_BYTES) * _PAGE_BYTES

    @property
    def num_bytes(self) -> int:
        """Size of the file."""
        return self.pixels_offset + self.count * self.picture_bytes

    @property
    def header(self) -> bytes:
        """The first page: a file with another one is not this file."""
        about = {"version": VERSION, "key": self._digest, "shape": self.shape, "count": self.count}
        return b"ddlplan pixels " + json.dumps(about).encode().ljust(_PAGE_BYTES - 16) + b"\n"

    @property
    def file_prefix(self) -> Path:
        """Path with which the names of the files of this data set and split begin."""
        return cache_folder() / "pixels" / _hash(self.name)[:16]

    @property
    def file(self) -> Path:
        """Path of the file."""
        return self.file_prefix.with_name(f"{self.file_prefix.name}-{self._digest[:32]}")

    @property
    def checksums_offset(self) -> int:
        """Offset of the first checksum."""
        return _PAGE_BYTES

    def open(self) -> int | None:
        """Open the file to read and write; ``None`` where there is none that is as described."""
        try:
            descriptor = os.open(self.file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        # To read a map beyond the end of its file would be SIGBUS.
        is_whole = os.fstat(descriptor).st_size == self.num_bytes
        if is_whole and os.pread(descriptor, _PAGE_BYTES, 0) == self.header:
            return descriptor
        os.close(descriptor)
        return None

    @property
    def _digest(self) -> str:
        return _hash(f"{VERSION}\0{self.key}")


def _hash(text: str) -> str:
    return sha256(text.encode(errors="surrogateescape")).hexdigest()
