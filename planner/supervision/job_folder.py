"""Job folder: the log of a supervised command, who runs it, and the record of how it ended."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from launch.system.durable_files import explain_os_error, make_folders, sync_folder, write_in_place
from launch.system.log_part import MOST_LOG_BYTES, LogPart, read_log_part
from launch.system.process_identity import ProcessIdentity
from planner.errors import RunDirectoryError
from planner.records.job_record import JobRecord, JobState
from probes import codec
from probes.errors import InvalidDocumentError

_T = TypeVar("_T")

JOBS = Path("jobs")
"""Folder of the jobs, in the working folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOwner:
    """The job that a folder belongs to: another machine's folder may have the same path."""

    id: int | None
    machine: str
    created_at: datetime

    @staticmethod
    def of(record: JobRecord) -> JobOwner:
        return JobOwner(id=record.id, machine=record.machine, created_at=record.created_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitRecord:
    """How a supervised command ended, as its supervisor saw it."""

    state: JobState
    exit_code: int | None
    error: str | None
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class JobFolder:
    """Files of one job; only their user can read them."""

    path: Path

    @property
    def log(self) -> Path:
        """What the command writes."""
        return self.path / "log"

    @property
    def exit_record(self) -> Path:
        """How it ended; missing until then."""
        return self.path / "exit.json"

    @property
    def _owner(self) -> Path:
        return self.path / "job.json"

    @property
    def _command(self) -> Path:
        return self.path / "command.json"

    @staticmethod
    def create(record: JobRecord, jobs: Path) -> JobFolder:
        """Make the folder of a job, ``jobs/<id>``; jobs of another database may have that name.

        Raises:
            RunDirectoryError: It cannot be made.
        """
        try:
            make_folders(jobs, mode=0o700)
            for name in (str(record.id), *(f"{record.id}-{n}" for n in range(2, 1000))):
                with suppress(FileExistsError):
                    path = jobs / name
                    path.mkdir(mode=0o700)
                    sync_folder(jobs)
                    folder = JobFolder(path.absolute())
                    folder.log.touch(mode=0o600)
                    folder._write(folder._owner, JobOwner.of(record))
                    return folder
        except OSError as error:
            raise RunDirectoryError(
                f"folder {jobs.absolute()} for the logs of jobs: {explain_os_error(error)}: start "
                "in a folder where it can be made"
            ) from error
        raise RunDirectoryError(f"folder {jobs.absolute()} is full: empty it")

    @staticmethod
    def find(record: JobRecord) -> JobFolder | None:
        """Find the folder of a job; ``None`` where it has none, or none that this machine sees."""
        if record.folder is None:
            return None
        folder = JobFolder(Path(record.folder))
        return folder if _read(folder._owner, JobOwner) == JobOwner.of(record) else None

    def write_command(self, process: ProcessIdentity) -> None:
        """Note the process of the command, which may outlive its supervisor by moments."""
        self._write(self._command, process)

    def read_command(self) -> ProcessIdentity | None:
        """Give the process of the command; ``None`` before its start."""
        return _read(self._command, ProcessIdentity)

    def write_exit(self, record: ExitRecord) -> None:
        """Put the exit record in its place, whole and on the disk."""
        self._write(self.exit_record, record)

    def read_exit(self) -> ExitRecord | None:
        """Read the exit record; ``None`` where there is none, or none that can be read."""
        return _read(self.exit_record, ExitRecord)

    def read_log(self, offset: int = 0, most_bytes: int = MOST_LOG_BYTES) -> LogPart:
        """Read a part of the log; see `read_log_part`."""
        return read_log_part(self.log, offset, most_bytes)

    def _write(self, path: Path, document: object) -> None:
        write_in_place(path, codec.encode(document, indent=1) + b"\n")


def _read(path: Path, kind: type[_T]) -> _T | None:
    # As a log: what stands in its place may be a pipe of another user, or a device.
    with suppress(InvalidDocumentError, ValueError):
        return codec.decode(read_log_part(path).text, kind, source=path.name)
    return None
