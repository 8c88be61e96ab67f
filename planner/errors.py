"""What can go wrong while a plan is searched, kept or chosen?

PlannerError
|-- UsageError                the command line makes no sense
|-- StoreError                the database cannot be used
|   |-- StoreLockedError          another program holds it for too long
|   |-- StoreCorruptError         it is damaged, or no database of ours
|   |-- StoreUnwritableError      it cannot be made, opened or written where it is
|   `-- StoreNewerError           a newer ddlplan made it
|-- StoreUrlError             the name of a database makes no sense
|-- PlanFileError             a plan file cannot be read
|-- NoPlanError               no plan: none stored, or no trial succeeded
|   `-- NoDatabaseError           no database either: nothing was tuned yet
|-- RunDirectoryError         there is no place for the files of a run
|-- StalePlanError            a plan was made on other hardware or software
|-- RefusedError              refused for safety
`-- TrainingFailedError       the training, or the user's own code in it, failed
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from launch.workers.reports import JobFailed


class PlannerError(Exception):
    """Base of what the planner floor raises on purpose."""

    exit_code: ClassVar[int] = 8
    """Status that the program ends with, from the table that scripts rely on."""

    kind: ClassVar[str] = "bug"
    """Short word for the error in JSON output."""


class UsageError(PlannerError):
    """The command line makes no sense."""

    exit_code = 2
    kind = "usage"


class StoreError(PlannerError):
    """The database cannot be used."""

    exit_code = 6
    kind = "store"


class StoreLockedError(StoreError):
    """Another program holds the database for too long."""

    kind = "locked"


class StoreCorruptError(StoreError):
    """The database is damaged, or no database of ours."""

    kind = "corrupt"


class StoreUnwritableError(StoreError):
    """The database cannot be made, opened or written where it is."""

    kind = "unwritable"


class StoreNewerError(StoreError):
    """A newer ddlplan made the database."""

    kind = "newer"


class StoreUrlError(PlannerError):
    """The name of a database makes no sense."""

    exit_code = 2
    kind = "database_url"


class PlanFileError(PlannerError):
    """A plan file cannot be read: the key and what was expected are in the message."""

    exit_code = 2
    kind = "plan_file"


class NoPlanError(PlannerError):
    """No plan: none is stored, or no trial succeeded."""

    exit_code = 3
    kind = "no_plan"


class NoDatabaseError(NoPlanError):
    """There is no database: nothing was tuned yet."""


class RunDirectoryError(PlannerError):
    """There is no place for the files of a run."""

    exit_code = 2
    kind = "run_directory"


class StalePlanError(PlannerError):
    """A plan was made on other hardware or software."""

    exit_code = 5
    kind = "stale_plan"


class RefusedError(PlannerError):
    """Refused for safety."""

    exit_code = 7
    kind = "refused"


class TrainingFailedError(PlannerError):
    """The training, or the user's own code in it, failed.

    Attributes:
        log_tail: Last lines of what the failed process wrote.
        lost_host: The host that does not answer any more, if that was it.
        is_accident: Whether it may go well another time: a process was killed, or hangs, or a
            host was lost. The user's own code was not the cause.
        checkpoint: The last one that the training had, where its first host sees it.
    """

    exit_code = 1
    kind = "training"

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
        self.lost_host = cause.node if cause is not None and cause.is_lost_host else None
        self.is_accident = is_accident or (
            cause is not None and (cause.signal is not None or cause.is_hang or cause.is_lost_host)
        )
