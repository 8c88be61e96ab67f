"""Errors of the planner.

PlannerError
|-- UsageError                the command line is invalid
|-- StoreError                the database cannot be used
|   |-- StoreLockedError          another program has locked it for too long
|   |-- StoreCorruptError         it is damaged, or belongs to another program
|   |-- StoreUnwritableError      it cannot be created, opened or written
|   |-- StoreUnreachableError     its server does not answer
|   `-- StoreNewerError           a newer ddlplan made it
|-- StoreUrlError             the name of a database is invalid
|-- PlanFileError             a plan file cannot be read
|-- GridFileError             a file of recorded trials cannot be read or written
|-- NoPlanError               no plan: none stored, or no trial succeeded
|   `-- NoDatabaseError           no database either: nothing was tuned yet
|-- NoJobError                no job has this number
|-- NoTrainingError           no training has this number
|-- NoSweepError              no sweep has this number
|-- ConflictError             something is not in a state in which that can be done
|-- SupervisorError           a job was stored and could not be started
|-- RunDirectoryError         there is no place for the files of a run
|-- StalePlanError            a plan was made on other hardware or software
|-- RefusedError              refused for safety
|-- OutputError               standard output takes no more
|-- CancelledError            a search or a job was ended because someone asked for it
`-- TrainingFailedError       the training, or the user's own code in it, failed
"""

from __future__ import annotations

from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launch.reports import JobFailed


class PlannerError(Exception):
    """Base of the planner's errors."""


class UsageError(PlannerError):
    """The command line is invalid."""


class StoreError(PlannerError):
    """The database cannot be used."""


class StoreLockedError(StoreError):
    """Another program has locked the database for too long."""


class StoreCorruptError(StoreError):
    """The database is damaged, or belongs to another program."""


class StoreUnwritableError(StoreError):
    """The database cannot be created, opened or written."""


class StoreUnreachableError(StoreError):
    """The server of the database does not answer, or does not let this user in."""


class StoreNewerError(StoreError):
    """A newer ddlplan made the database."""


class StoreUrlError(PlannerError):
    """The name of a database is invalid."""


class PlanFileError(PlannerError):
    """A plan file cannot be read: the message has the key and the expected value."""


class GridFileError(PlannerError):
    """A file of recorded trials cannot be read or written."""


class NoPlanError(PlannerError):
    """No plan: none is stored, or no trial succeeded."""


class NoDatabaseError(NoPlanError):
    """There is no database: nothing was tuned yet.

    Attributes:
        above: Option that names a database of the same name in a folder above; ``None`` without.
    """

    def __init__(self, message: str, *, above: str | None = None) -> None:
        super().__init__(message)
        self.above = above


class NoJobError(PlannerError):
    """No job has this number."""


class ConflictError(PlannerError):
    """Something is not in a state in which that can be done."""


class SupervisorError(PlannerError):
    """A job was stored and could not be started."""


class NoTrainingError(PlannerError):
    """No training has this number."""


class NoSweepError(PlannerError):
    """No sweep has this number."""


class RunDirectoryError(PlannerError):
    """There is no place for the files of a run."""


class StalePlanError(PlannerError):
    """A plan was made on other hardware or software."""


class RefusedError(PlannerError):
    """Refused for safety."""


class OutputError(PlannerError):
    """Standard output takes no more, as where its disk is full."""


class CancelledError(PlannerError):
    """A search or a job was ended because someone asked for it.

    Attributes:
        signal: The signal that asked for it, or that a program would end by in its place.
        crash: How a program of the user's ended by it where nobody asked; else ``None``.
    """

    def __init__(self, number: int = SIGINT, *, crash: str | None = None) -> None:
        super().__init__("cancelled")
        self.signal, self.crash = int(number), crash


class TrainingFailedError(PlannerError):
    """The training, or the user's own code in it, failed.

    Attributes:
        log_tail: Last lines of the failed process's output.
        is_accident: Whether a restart may succeed: a process was killed, or hangs, or a host was
            lost. The user's own code was not the cause.
        checkpoint: Last one of the training, as its first host sees it.
    """

    def __init__(
        self,
        message: str,
        *,
        log_tail: str = "",
        cause: JobFailed | None = None,
        is_accident: bool = False,
    ) -> None:
        super().__init__(message)
        self.log_tail = log_tail
        self.checkpoint: Path | None = None
        self.is_accident = is_accident or (
            cause is not None and (cause.signal is not None or cause.is_hang or cause.is_lost_host)
        )


def reason_of(error: Exception) -> str:
    """Give why something failed, in lower case, for a message that names it already."""
    return str(getattr(error, "strerror", None) or error).lower()
