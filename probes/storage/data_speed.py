"""Speed of a folder of data: how fast its files are read, and whether a local copy would be faster.

``python -m probes.storage.data_speed DIR --budget-s 12 --cores 2 --local DIR`` measures some of the
files and prints what it has found after each step; `measure_data` starts that and reads it. In a
process of its own, because a file server that does not answer holds up whoever reads from it.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from probes import codec
from probes.child_process import module_command, run_child
from probes.errors import DataProbeError, InvalidDocumentError
from probes.hardware import DataSpeed, LocalCopy, ReadRate
from probes.storage.file_system import find_file_system
from probes.storage.files import LISTING_S, DataFile, DataFiles, list_data
from probes.storage.reading import (
    forget,
    open_latency_s,
    random_rate,
    read_rate,
    sequential_rate,
    take,
)

_GRACE_S = 5.0
_MOST_READERS = 16
_FIRST_FILES = 64
_LARGE_BYTES = 4 << 20
"""From which on a file shows how fast one file is read."""

_COPY_FILES, _COPY_BYTES = 256, 64 << 20


def measure_data(path: Path, *, cores: int, local: Path, budget_s: float) -> DataSpeed:
    """Measure how fast the files of a folder, or one file, are read.

    Args:
        path: Of the data.
        cores: That may read at once; so many readers and twice as many are tried.
        local: Folder on a local disk, for a copy of some files where the data are elsewhere; it is
            left as it was.
        budget_s: For measuring; listing the files comes on top, at most 20 s.

    Raises:
        DataProbeError: The data cannot be read, or nothing could be measured in time.
    """
    arguments = [f"--budget-s={budget_s}", f"--cores={cores}", f"--local={local}", "--", str(path)]
    ended = run_child(
        module_command("probes.storage.data_speed", *arguments),
        limit_s=LISTING_S + budget_s + _GRACE_S,
    )
    try:
        if ended.document is not None:
            return codec.convert(ended.document, DataSpeed, source="data")
    except InvalidDocumentError as error:
        raise DataProbeError(f"data {path}: {error}") from error
    raise DataProbeError(f"data {path} cannot be measured: {ended.failure or 'nothing was found'}")


def _measure(path: Path, *, cores: int, local: Path, budget_s: float) -> Iterator[DataSpeed]:
    """Give what is known after each step."""
    system = find_file_system(path)
    files = list_data(path)
    found = DataSpeed(
        path=str(path.absolute()),
        file_system=system.kind,
        is_network=system.is_network,
        is_in_memory=system.is_in_memory,
        num_files=files.num_files if files.is_complete else None,
        num_bytes=files.num_bytes if files.is_complete else None,
    )
    yield found
    if not files.sample:
        return
    counts = _reader_counts(cores)
    copies = system.is_network and not find_file_system(local).is_network
    # One for each number of readers, warm for two of them, and four for files and the copy.
    part_s = budget_s / (len(counts) * (2 if copies else 1) + 6)
    supply = _Supply(files.sample)
    first = supply.take_forgotten(_FIRST_FILES)
    found = replace(found, num_unreadable=supply.num_unreadable)
    if not first:
        yield found
        return
    found = replace(found, open_s=open_latency_s(first, limit_s=part_s))
    yield found
    for readers in counts:
        rate = supply.measure_cold(readers, part_s)
        found = replace(found, cold=(*found.cold, rate))
        yield found
    warm = tuple(supply.measure_warm(readers, part_s) for readers in (1, counts[-1]))
    found = replace(found, warm=warm)
    yield found
    if copies:
        found = replace(found, local=_measure_copy(supply, local, counts, part_s))
        yield found
    found = replace(found, num_unreadable=supply.num_unreadable)
    yield _add_large(found, files, part_s)


def _reader_counts(cores: int) -> list[int]:
    """Give the numbers of readers to try: 1, 2, 4, ... and twice the cores."""
    most = min(_MOST_READERS, 2 * cores)
    return sorted({*(1 << power for power in range(5) if 1 << power < most), most})


class _Supply:
    """Files to read, each as seldom as possible: a server remembers what it was asked for.

    Attributes:
        num_unreadable: Files that could not be opened, and are left out.
    """

    def __init__(self, sample: Sequence[DataFile]) -> None:
        self._files = deque(sample)
        self.num_unreadable = 0
        self._files_per_s = 0.0
        self._last: list[DataFile] = []

    def take_forgotten(self, count: int) -> list[DataFile]:
        """Take the next files that can be opened, and let the page cache go of them."""
        self._last = []
        for _ in range(len(self._files)):
            file = self._files.popleft()
            if not forget([file]):
                self.num_unreadable += 1
                continue
            self._files.append(file)
            self._last.append(file)
            if len(self._last) == count:
                break
        return self._last

    def measure_cold(self, readers: int, limit_s: float) -> ReadRate:
        """Measure files that are not in the page cache."""
        expected = 2 * self._files_per_s * limit_s  # as if one more reader doubled it
        files = self.take_forgotten(max(_FIRST_FILES, round(expected)))
        rate = read_rate(files, readers=readers, limit_s=limit_s)
        self._files_per_s = max(self._files_per_s, rate.files_per_s)
        return rate

    def measure_warm(self, readers: int, limit_s: float) -> ReadRate:
        """Measure the files that were taken last, once they are in the page cache."""
        read_rate(self._last, readers=readers, limit_s=limit_s)
        # What was not read for lack of time is not in the cache: only the first of them count.
        known = self._last[: max(1, min(len(self._last), _FIRST_FILES))]
        read_rate(known, readers=1, limit_s=limit_s)
        return read_rate(known, readers=readers, limit_s=limit_s)


def _measure_copy(
    supply: _Supply, local: Path, counts: Sequence[int], part_s: float
) -> LocalCopy | None:
    """Copy some files to a local disk and read them there; ``None`` where that is not possible."""
    try:
        free_bytes = shutil.disk_usage(local).free
        with tempfile.TemporaryDirectory(prefix=".ddlplan-probe-", dir=local) as folder:
            taken = take(supply.take_forgotten(_COPY_FILES), _COPY_BYTES)
            copies, rate = _copy(taken, Path(folder), limit_s=2 * part_s)
            cold = []
            for readers in counts:
                forget(copies)
                cold.append(read_rate(copies, readers=readers, limit_s=part_s))
            read_rate(copies, readers=1, limit_s=part_s)
            warm = tuple(
                read_rate(copies[:_FIRST_FILES], readers=readers, limit_s=part_s)
                for readers in (1, counts[-1])
            )
    except OSError:
        return None  # no room, or no permission: then there is no copy to advise either
    kind = find_file_system(local).kind
    return LocalCopy(
        folder=str(local),
        file_system=kind,
        copy_files_per_s=rate,
        cold=tuple(cold),
        warm=warm,
        free_bytes=free_bytes,
    )


def _copy(
    files: Sequence[DataFile], folder: Path, *, limit_s: float
) -> tuple[list[DataFile], float]:
    """Copy files one after the other, down to the disk; give the copies, and files per second."""
    copies, started = [], time.perf_counter()
    for number, file in enumerate(files):
        copy = folder / str(number)
        shutil.copyfile(file.path, copy)
        copies.append(DataFile(path=str(copy), num_bytes=file.num_bytes))
        if time.perf_counter() - started > limit_s:
            break
    forget(copies)  # which waits until they are on the disk
    return copies, len(copies) / (time.perf_counter() - started)


def _add_large(found: DataSpeed, files: DataFiles, part_s: float) -> DataSpeed:
    """Add how fast one large file is read, where there is one."""
    large = files.largest
    if large is None or large.num_bytes < _LARGE_BYTES or not forget([large]):
        return found
    sequential = sequential_rate(large, limit_s=part_s)
    forget([large])
    return replace(
        found,
        sequential_bytes_per_s=sequential,
        random_bytes_per_s=random_rate(large, limit_s=part_s),
    )


def main() -> None:
    """Measure, and print a JSON document after each step."""
    parser = argparse.ArgumentParser(
        prog="python -m probes.storage.data_speed", description=__doc__
    )
    parser.add_argument("--budget-s", type=float, default=12.0, help="time for measuring")
    parser.add_argument("--cores", type=int, default=1, help="that may read at once")
    parser.add_argument("--local", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("path", type=Path)
    for found in _measure(**vars(parser.parse_args())):
        print(codec.encode(found).decode(), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
