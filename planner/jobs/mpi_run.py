"""Runner of an MPI job: starts it, reads its reports, and ends it where it must end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from launch.liveness.inactivity import InactivityTimer
from launch.mpi.job import MpiJob
from launch.rank.control_signals import CHECKPOINT, STOP
from launch.reports import EndRequested, HostUsed, JobFailed, Report, StepDone
from launch.system.durable_files import explain_os_error, write_private
from launch.system.run_directory import RunDirectory
from launch.system.temporary_folder import TemporaryFolder
from planner.cancellation import Cancellation
from planner.errors import RunDirectoryError
from planner.jobs.placement import Placement

OnReport = Callable[[Report], None]

_START_LIMIT_S = 180.0
"""Until a rank has reported; the hosts passed their checks, but a busy one may take its time."""

_POLL_INTERVAL_S = 0.5
_CAUSE_LIMIT_S = 3.0
"""For which a job may continue after a failure was reported: more of the cause may follow. Not
longer, because mpirun waits for a host that does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MpiRunEnd:
    """How an MPI job ended."""

    code: int
    """Exit status of mpirun, negative for a signal. It is not 0 where a host was lost, a rank has
    reported a failure, or the job was silent."""

    errors: str
    """What mpirun and the ranks wrote to stderr; of a job that was silent, until it was ended."""

    failures: tuple[JobFailed, ...]
    """Reported by the ranks, in that order."""

    has_reported: bool
    """Whether any rank has reported anything."""

    end_signal: int | None
    """Signal by which someone else asked the ranks to end, and they have ended in order."""

    silence_s: float | None
    """Seconds without a report after which the job was ended; ``None`` where it ended itself."""

    is_stopped: bool
    """Whether mpirun stood still then, as by SIGSTOP."""


def run_mpi(
    placement: Placement,
    program: str,
    document: bytes | None,
    directory: RunDirectory,
    on_report: OnReport,
    cancellation: Cancellation,
    *,
    start_limit_s: float = _START_LIMIT_S,
    silence_limit_s: float | None = None,
) -> MpiRunEnd:
    """Run a program of ours with one rank on each host, to its end. An exception ends it too.

    Args:
        placement: Where the ranks start.
        program: Module that each rank runs; it gets the name of the document's file.
        document: What rank 0 reads.
        directory: Takes the document, mpirun's log and the ssh configuration.
        on_report: Takes each report of a rank.
        cancellation: Ends the job. A job that has made a step ends after the next one.
        start_limit_s: Time until the first report after which the job is ended.
        silence_limit_s: The same from then on; ``None`` where ranks may be silent for any time.

    Raises:
        CancelledError: The job was ended because that was asked for.
        LaunchError: There is no MPI that can do it, or the first host does not take the document.
        RunDirectoryError: The document cannot be written here.
    """
    placement.prepare(directory)
    arguments = []
    if document is not None:
        try:
            write_private(directory.job, document)
        except OSError as error:
            raise RunDirectoryError(
                f"files of the run: {explain_os_error(error)}: make room there, or start elsewhere"
            ) from error
        arguments.append(str(placement.deliver(directory)))
    command = placement.command([program, *arguments], directory, os.environ)
    limits_s = (start_limit_s, silence_limit_s or float("inf"))
    with _orderly_end(cancellation), MpiJob(command, directory.mpirun_log) as job:
        reader = _ReportReader(job, on_report, cancellation, limits_s)
        silence_s = reader.read()
        is_stopped, errors = job.is_stopped, job.read_errors()
        if silence_s is not None or reader.failures:
            job.stop()
        code = job.wait()
    return MpiRunEnd(
        code=code or int(bool(reader.failures) or silence_s is not None),
        # What mpirun writes of being ended from here would hide why the job was silent.
        errors=job.read_errors() if silence_s is None else errors,
        failures=tuple(reader.failures),
        has_reported=reader.has_reported,
        end_signal=reader.end_signal,
        silence_s=silence_s,
        is_stopped=is_stopped,
    )


@contextmanager
def temporary_run_directory() -> Iterator[RunDirectory]:
    """Make a directory for a run that leaves nothing, readable by this user alone."""
    with TemporaryFolder() as path:
        yield RunDirectory(path)


@dataclass(slots=True)
class _ReportReader:
    """Reads the reports of a running job until it ends or must be ended."""

    job: MpiJob
    on_report: OnReport
    cancellation: Cancellation

    limits_s: tuple[float, float]
    """Longest silence before the first report, and after it."""

    failures: list[JobFailed] = field(default_factory=list)
    has_reported: bool = False
    end_signal: int | None = None
    _is_asked_to_end: bool = False

    def read(self) -> float | None:
        """Read all reports; give the limit where the job was silent for longer.

        A failed job ends by itself, but not where mpirun waits for a host that does not answer.
        """
        inactivity, give_up = InactivityTimer(), float("inf")
        while not self.job.is_over and time.monotonic() < give_up:
            self._obey()
            report = self.job.next_report(_POLL_INTERVAL_S)
            silence_s = inactivity.poll()
            if report is not None:
                self._take(report)
            # Each rank reports what its host uses by itself, also while the first one stands still.
            if report is not None and not isinstance(report, HostUsed):
                self.has_reported = True
                inactivity.restart()
            elif silence_s > (limit_s := self.limits_s[self.has_reported]):
                return limit_s
            if self.failures and give_up == float("inf"):
                give_up = time.monotonic() + _CAUSE_LIMIT_S
        return None

    def _take(self, report: Report) -> None:
        match report:
            case StepDone():
                self.cancellation.is_orderly = True
            case JobFailed():
                self.failures.append(report)
            case EndRequested(signal=number):
                self.end_signal = number
        self.on_report(report)

    def _obey(self) -> None:
        cancellation = self.cancellation
        if cancellation.take_checkpoint_request():
            self.job.signal(CHECKPOINT)
        if not cancellation.is_requested:
            return
        if cancellation.is_urgent or not cancellation.is_orderly:
            raise cancellation.make_error()
        if not self._is_asked_to_end:
            self._is_asked_to_end = True
            self.job.signal(STOP)


@contextmanager
def _orderly_end(cancellation: Cancellation) -> Iterator[None]:
    """Let the cancellation know while a job runs that ends in order."""
    cancellation.take_checkpoint_request()  # one that came before the job is none of it
    try:
        yield
    finally:
        cancellation.is_orderly = False
