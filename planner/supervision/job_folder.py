"""Job folder: the log of a supervised command, and the record of how it ended."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from launch.system.durable_files import (
    explain_os_error,
    make_folders,
    replace_durably,
    write_durably,
)
from launch.system.log_part import MOST_LOG_BYTES as MOST_LOG_BYTES
from launch.system.log_part import LogPart as LogPart
from launch.system.log_part import read_log_part
from planner.errors import RunDirectoryError
from planner.records.job_record import JobState
from probes import codec
from probes.errors import InvalidDocumentError

JOBS = Path("jobs")
"""Folder of the jobs, in the working folder."""


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

    @staticmethod
    def create(job_id: int, jobs: Path = JOBS) -> JobFolder:
        """Make the folder of a job, ``jobs/<id>``; jobs of another database may have that name.

        Raises:
            RunDirectoryError: It cannot be made.
        """
        try:
            make_folders(jobs, mode=0o700)
            for name in (str(job_id), *(f"{job_id}-{number}" for number in range(2, 1000))):
                with suppress(FileExistsError):
                    path = jobs / name
                    path.mkdir(mode=0o700)
                    folder = JobFolder(path.absolute())
                    folder.log.touch(mode=0o600)
                    return folder
        except OSError as error:
            raise RunDirectoryError(
                f"folder {jobs.absolute()} for the logs of jobs: {explain_os_error(error)}: start "
                "in a folder where it can be made"
            ) from error
        raise RunDirectoryError(f"folder {jobs.absolute()} is full: empty it")

    def write_exit(self, record: ExitRecord) -> None:
        """Put the exit record in its place, whole and on the disk."""
        new = self.path / f"exit.{os.getpid()}.new"
        with write_durably(new) as file:
            file.write(codec.encode(record, indent=1) + b"\n")
        replace_durably(new, self.exit_record)

    def read_exit(self) -> ExitRecord | None:
        """Read the exit record; ``None`` where there is none, or none that can be read."""
        try:
            text = self.exit_record.read_bytes()
            return codec.decode(text, ExitRecord, source="exit record")
        except (OSError, InvalidDocumentError):
            return None

    def read_log(self, offset: int = 0, most_bytes: int = MOST_LOG_BYTES) -> LogPart:
        """Read a part of the log.

        Args:
            offset: First byte; below 0 it counts from the end.
            most_bytes: At most so many, and never more than `MOST_LOG_BYTES`.
        """
        return read_log_part(self.log, offset, most_bytes)
