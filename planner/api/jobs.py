"""Jobs: searches and trainings that run or ran, those without a terminal included."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from launch.system.log_part import MOST_LOG_BYTES, LogPart
from planner.errors import ConflictError, UsageError
from planner.records.job_record import OPEN_STATES, JobKind, JobRecord, JobState
from planner.store import Store
from planner.supervision.job_folder import JobFolder
from planner.supervision.resuming import resume_request
from planner.supervision.states import true_jobs, true_trainings
from planner.supervision.submission import submit as submit_to


def submit(kind: JobKind, request: Mapping[str, Any], *, db: str = "planner.db") -> JobRecord:
    """Start a command that outlives this program; jobs of one machine run one after another.

    Example:
        >>> from planner.api import jobs
        >>> from planner.records.job_record import JobKind
        >>> job = jobs.submit(JobKind.TUNE, {"use_case": "simplebig"})  # doctest: +SKIP
        >>> job.state  # doctest: +SKIP
        <JobState.QUEUED: 'queued'>

    Args:
        kind: Which command.
        request: Its options by their long names, with underscores: `planner.supervision.options`.
        db: Database, made where it is missing, unless plans are needed.

    Raises:
        NoDatabaseError: There is none, and so no plan to launch.
        UsageError: An option is none that a job can have.
        RunDirectoryError: The folder for its log cannot be made.
        SupervisorError: It could not be started.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=kind is not JobKind.LAUNCH) as store:
        return submit_to(store, db, kind, request)


def find(
    *,
    states: Collection[JobState] | None = None,
    training_id: int | None = None,
    before: int | None = None,
    most: int | None = None,
    db: str = "planner.db",
) -> list[JobRecord]:
    """Give jobs, the newest first, each in its true state.

    Example:
        >>> from planner.api import jobs
        >>> [job.state for job in jobs.find()]  # doctest: +SKIP
        [<JobState.RUNNING: 'running'>, <JobState.DONE: 'done'>]

    Args:
        states: Only in one of these states.
        training_id: Only those that ran this training.
        before: With a lower number.
        most: At most so many.
        db: Database.

    Raises:
        NoDatabaseError: There is no database.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        if states is None:
            found = store.jobs.find(training_id=training_id, before=before, most=most)
            return list(true_jobs(store, found))
        # Some that are stored as open may be over, and not all of these can be set right.
        is_open = store.jobs.find(states=OPEN_STATES, training_id=training_id, before=before)
        judged = [job for job in true_jobs(store, is_open) if job.state in states]
        over = [state for state in states if state.is_over]
        stored = store.jobs.find(states=over, training_id=training_id, before=before, most=most)
        by_number = {job.id: job for job in (*judged, *stored)}
        return sorted(by_number.values(), key=lambda job: job.id or 0, reverse=True)[:most]


def get(job_id: int, *, db: str = "planner.db") -> JobRecord:
    """Give one job in its true state.

    Example:
        >>> from planner.api import jobs
        >>> jobs.get(1).exit_code  # doctest: +SKIP
        0

    Raises:
        NoJobError: No job has this number.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        return next(true_jobs(store, [store.jobs.get(job_id)]))


def read_log(
    job_id: int, *, offset: int = 0, most_bytes: int = MOST_LOG_BYTES, db: str = "planner.db"
) -> LogPart:
    """Read a part of what a job has written.

    Example:
        >>> from planner.api import jobs
        >>> jobs.read_log(1, offset=-200).text  # doctest: +SKIP
        'stored     plan 1; next: ddlplan launch --use-case simplebig'

    Args:
        job_id: Its number.
        offset: First byte; below 0 it counts from the end.
        most_bytes: At most so many, and never more than `MOST_LOG_BYTES`.
        db: Database.

    Raises:
        NoJobError: No job has this number.
        UsageError: It has no log, or one on another machine.
        StoreError: The database cannot be used.
    """
    job = get(job_id, db=db)
    if job.folder is None:
        raise UsageError(f"job {job_id} has no log: it writes to the terminal that started it")
    folder = JobFolder.find(job)
    if folder is None:
        raise UsageError(f"the log of job {job_id} is not in {job.folder} here: see {job.machine}")
    return folder.read_log(offset, most_bytes)


def cancel(job_id: int, *, db: str = "planner.db") -> JobRecord:
    """Ask for the end of a job; its supervisor sees to it, wherever that runs.

    Example:
        >>> from planner.api import jobs
        >>> jobs.cancel(2).cancel_requested_at is not None  # doctest: +SKIP
        True

    Raises:
        NoJobError: No job has this number.
        ConflictError: It is over, or a terminal runs it, which ends it by Ctrl-C.
        StoreError: The database cannot be used.
    """
    job = get(job_id, db=db)
    if job.state.is_over:
        raise ConflictError(f"job {job_id} is over: it is {job.state}")
    if not job.is_detached:
        raise ConflictError(
            f"job {job_id} runs in a terminal of {job.user} on {job.machine}: Ctrl-C there ends it"
        )
    with Store.open(db, create=False) as store:
        store.jobs.request_cancel(job_id)
        return next(true_jobs(store, [store.jobs.get(job_id)]))


def resume(
    training_id: int,
    *,
    use_cases: Collection[str] | None = None,
    where: Mapping[str, Any] | None = None,
    hosts: Mapping[str, Any] | None = None,
    db: str = "planner.db",
) -> JobRecord:
    """Go on with a training from its newest checkpoint, as a job.

    Example:
        >>> from planner.api import jobs
        >>> jobs.resume(3).title  # doctest: +SKIP
        'ddlplan launch --use-case=simplebig --epochs=9 --checkpoint=/home/ada/ck --resume'

    Args:
        training_id: Its number.
        use_cases: Whose code may run; any where left out.
        where: Options that say how machines are reached.
        hosts: Options that name the hosts of a training of several.
        db: Database.

    Raises:
        NoTrainingError: No training has this number.
        ConflictError: It cannot be resumed as it is.
        RefusedError: Its use case is none of these.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        training = next(true_trainings(store, [store.trainings.get(training_id)]))
        unfinished = store.jobs.find(states=OPEN_STATES)
        related = [*unfinished, *store.jobs.find(training_id=training_id)]
        request = resume_request(
            training,
            list(true_jobs(store, related)),
            use_cases=use_cases,
            where=where or {},
            hosts=hosts,
        )
        return submit_to(store, db, JobKind.LAUNCH, request)
