"""Files of a folder of data: their number and size, and some of them to be measured."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LISTING_S = 20.0
_MOST_SAMPLES = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A regular file."""

    path: str
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFiles:
    """The files below a folder, or the one file that a path names."""

    num_files: int
    num_bytes: int

    is_complete: bool
    """Whether all were listed in time."""

    sample: tuple[DataFile, ...]
    """Some of those with content, drawn from all of them, in random order."""

    largest: DataFile | None


def list_data(path: Path, *, limit_s: float = LISTING_S) -> DataFiles:
    """List what a data set has; names with a leading dot, and what cannot be read, are left out.

    Raises:
        OSError: The path itself cannot be read.
    """
    give_up = time.monotonic() + limit_s
    chooser = random.Random(0)  # noqa: S311 - no secret
    count = size = with_content = 0
    sample: list[DataFile] = []
    largest: DataFile | None = None
    is_complete = True
    for file in _walk(path) if path.is_dir() else [_stat(path)]:
        count, size = count + 1, size + file.num_bytes
        if file.num_bytes:
            # Every file has the same chance to be in the sample: Vitter's algorithm R, 1985.
            with_content += 1
            if len(sample) < _MOST_SAMPLES:
                sample.append(file)
            elif (place := chooser.randrange(with_content)) < _MOST_SAMPLES:
                sample[place] = file
            if largest is None or file.num_bytes > largest.num_bytes:
                largest = file
        if time.monotonic() > give_up:
            is_complete = False
            break
    chooser.shuffle(sample)
    return DataFiles(
        num_files=count,
        num_bytes=size,
        is_complete=is_complete,
        sample=tuple(sample),
        largest=largest,
    )


def _stat(path: Path) -> DataFile:
    return DataFile(path=str(path), num_bytes=path.stat().st_size)


def _walk(folder: Path) -> Iterator[DataFile]:
    """Give all regular files; links to folders are not followed, as they may lead in a circle."""
    waiting = [str(folder)]
    is_first = True
    while waiting:
        try:
            entries = os.scandir(waiting.pop())
        except OSError:
            if is_first:
                raise
            continue
        is_first = False
        with entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                try:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.is_file():
                        yield DataFile(path=entry.path, num_bytes=entry.stat().st_size)
                except OSError:
                    continue
