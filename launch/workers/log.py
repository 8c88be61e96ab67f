"""Where does the output of a worker go? Into a file that keeps its head and its tail."""

from __future__ import annotations

import os
from pathlib import Path

_MOST_BYTES = 8 * 2**20
_MARK = b"\n[... %d bytes are left out here ...]\n"


class BoundedLog:
    """A file that never becomes larger than a limit, for the user alone.

    What is in it already counts too. When it is full, its last quarter follows its first one, and
    what was in between is left out: a process that prints for ever must not fill a disk, and both
    how it began and how it ended say something.

    Args:
        path: Of the file.
        most_bytes: The limit.
    """

    def __init__(self, path: Path, most_bytes: int = _MOST_BYTES) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._size = os.fstat(self._file).st_size
        self._most_bytes = most_bytes
        self._kept_bytes = most_bytes // 4
        self._left_out_bytes = 0

    def write(self, block: bytes) -> None:
        """Add what a process has written; a full disk is no reason to end it."""
        for start in range(0, len(block), self._kept_bytes):
            piece = block[start : start + self._kept_bytes]
            if self._size + len(piece) > self._most_bytes:
                self._shorten()
            self._append(piece)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _shorten(self) -> None:
        tail = os.pread(self._file, self._kept_bytes, self._size - self._kept_bytes)
        self._left_out_bytes += self._size - 2 * self._kept_bytes
        os.ftruncate(self._file, self._kept_bytes)
        self._size = self._kept_bytes
        self._append(_MARK % self._left_out_bytes + tail)

    def _append(self, block: bytes) -> None:
        try:
            self._size += os.write(self._file, block)
        except OSError:
            return


def read_tail(path: Path, lines: int, most_bytes: int = 16384) -> str:
    """Give the last lines of a file, nothing where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - most_bytes))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
