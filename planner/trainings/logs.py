"""Logs of a training: what its workers and mpirun wrote into its run directory, on this machine."""

from __future__ import annotations

import platform
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from launch.system.log_part import LogPart, read_log_part
from launch.system.run_directory import RunDirectory
from planner.errors import UsageError
from planner.records.training_record import TrainingRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingLog:
    """A log that a training has left."""

    name: str
    """Of its file, by which it is asked for."""

    host: str | None
    """Whose worker wrote it; ``None`` for mpirun's."""

    size: int
    """In bytes."""


def list_logs(record: TrainingRecord) -> list[TrainingLog]:
    """List the logs of a training that are on this machine, mpirun's first.

    Workers of another host write theirs on that host, unless it shares the folder.

    Raises:
        UsageError: Another machine started the training: its folder is there.
    """
    directory = _directory_here(record)
    files: list[tuple[Path, str | None]] = [(directory.mpirun_log, None)]
    # There may be no such folder, or it is another user's, or its path one that no file can have.
    with suppress(OSError, ValueError):
        for host in record.hosts:
            # worker 10 after worker 9
            logs = sorted(directory.list_logs(host.host), key=lambda log: (len(log.name), log.name))
            files += [(log, host.host) for log in logs]
    return [
        TrainingLog(name=file.name, host=host, size=size)
        for file, host in files
        if (size := _size(file)) is not None
    ]


def read_log(record: TrainingRecord, name: str, offset: int, most_bytes: int) -> LogPart:
    """Read a part of a log of a training.

    Raises:
        UsageError: No log of the training has this name, or the training is another machine's.
    """
    names = [log.name for log in list_logs(record)]
    if name not in names:
        known = f"it has {', '.join(names)}" if names else "it has none here"
        raise UsageError(f"training {record.id} has no log {name!r:.80}: {known}")
    return read_log_part(_directory_here(record).path / name, offset, most_bytes)


def _directory_here(record: TrainingRecord) -> RunDirectory:
    process = record.process
    is_here = record.machine == platform.node() if process is None else process.is_here()
    if not is_here:
        # A path of the same name is here that of another training.
        raise UsageError(
            f"the logs of training {record.id} are in {record.run_directory} on {record.machine}, "
            "not here"
        )
    return RunDirectory(Path(record.run_directory))


def _size(file: Path) -> int | None:
    """Give the size of a log; ``None`` where it is no file of its own, as a link is not."""
    try:
        found = file.lstat()
    except (OSError, ValueError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None
