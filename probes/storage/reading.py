"""Reading of files, from the page cache or not, by some readers at once.

What the page cache has of a file is let go before it is read, by ``POSIX_FADV_DONTNEED``, for which
no root is needed. What a file server or a disk controller has in its own memory stays there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from statistics import median
from threading import Lock

from probes.hardware import ReadRate
from probes.storage.files import DataFile

_BLOCK_BYTES = 1 << 20
_PIECE_BYTES = 64 << 10
_FEW_FILES = 4
"""Files that are read even when the time is up: fewer say nothing."""


def forget(files: Iterable[DataFile]) -> list[DataFile]:
    """Let the page cache go of files, once what was written to them is on the disk.

    Returns:
        Those that could be opened.
    """
    opened = []
    for file in files:
        try:
            descriptor = os.open(file.path, os.O_RDONLY)
        except OSError:
            continue
        try:
            os.fdatasync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
        opened.append(file)
    return opened


def read_rate(files: Sequence[DataFile], *, readers: int, limit_s: float) -> ReadRate:
    """Read whole files, each reader one after the other, until all are read or the time is up."""
    waiting, lock = iter(files), Lock()
    started = time.perf_counter()

    def read_some() -> tuple[int, int]:
        count = size = 0
        buffer = bytearray(_BLOCK_BYTES)
        while count < _FEW_FILES or time.perf_counter() - started < limit_s:
            with lock:
                file = next(waiting, None)
            if file is None:
                break
            count, size = count + 1, size + read_file(file, buffer)
        return count, size

    with ThreadPoolExecutor(readers, "read") as pool:
        ended = list(pool.map(lambda _: read_some(), range(readers)))
    elapsed_s = time.perf_counter() - started
    return ReadRate(
        readers=readers,
        files_per_s=sum(count for count, _ in ended) / elapsed_s,
        bytes_per_s=sum(size for _, size in ended) / elapsed_s,
    )


def read_file(file: DataFile, buffer: bytearray) -> int:
    """Read a file from its beginning to its end; give its size."""
    size = 0
    descriptor = os.open(file.path, os.O_RDONLY)
    try:
        while count := os.readv(descriptor, [buffer]):
            size += count
    finally:
        os.close(descriptor)
    return size


def open_latency_s(files: Iterable[DataFile], *, limit_s: float) -> float:
    """Give the median time to open a file and to read its first byte."""
    times, give_up = [], time.perf_counter() + limit_s
    for file in files:
        started = time.perf_counter()
        descriptor = os.open(file.path, os.O_RDONLY)
        try:
            os.pread(descriptor, 1, 0)
        finally:
            os.close(descriptor)
        ended = time.perf_counter()
        times.append(ended - started)
        if ended > give_up:
            break
    return median(times)


def sequential_rate(file: DataFile, *, limit_s: float) -> float:
    """Give the bytes per second of a file from its beginning, for as long as there is time."""
    return _rate(file, range(0, file.num_bytes, _BLOCK_BYTES), _BLOCK_BYTES, limit_s)


def random_rate(file: DataFile, *, limit_s: float) -> float:
    """Give the bytes per second of pieces of 64 KiB, one after the other, drawn at random."""
    draw = Random(0).randrange  # noqa: S311 - no secret
    pieces = file.num_bytes // _PIECE_BYTES
    offsets = (draw(pieces) * _PIECE_BYTES for _ in range(pieces))
    return _rate(file, offsets, _PIECE_BYTES, limit_s, os.POSIX_FADV_RANDOM)


def _rate(
    file: DataFile,
    offsets: Iterable[int],
    num_bytes: int,
    limit_s: float,
    advice: int = os.POSIX_FADV_NORMAL,
) -> float:
    descriptor = os.open(file.path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, advice)
        buffer, size, started = bytearray(num_bytes), 0, time.perf_counter()
        for offset in offsets:
            size += os.preadv(descriptor, [buffer], offset)
            if time.perf_counter() - started > limit_s:
                break
        return size / (time.perf_counter() - started)
    finally:
        os.close(descriptor)


def take(files: Iterable[DataFile], most_bytes: int) -> list[DataFile]:
    """Take the first files that are so large together, at least one."""
    taken, size = [], 0
    for file in files:
        taken.append(file)
        size += file.num_bytes
        if size >= most_bytes:
            break
    return taken
