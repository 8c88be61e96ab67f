"""Training of a job: it runs to its end, and its epochs and files are recorded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from launch.errors import UseCaseError
from launch.job import Job
from launch.rank.epoch import EpochStatistics
from launch.reports import (
    Alive,
    BestWeightsSaved,
    CheckpointSaved,
    Described,
    EpochDone,
    GradientsSynced,
    OnnxFailed,
    OnnxSaved,
    Report,
    StepDone,
    StepsFinished,
    Validated,
    Warned,
    WeightsSaved,
)
from launch.system.durable_files import explain_os_error
from launch.system.run_directory import RunDirectory, append_line
from planner.cancellation import Cancellation
from planner.errors import CancelledError, RunDirectoryError, TrainingFailedError, reason_of
from planner.jobs.failure import (
    explain_end,
    explain_not_finite,
    explain_root_cause,
    explain_silence,
    find_root_cause,
)
from planner.jobs.mpi_run import OnReport, run_mpi
from planner.jobs.placement import Placement
from probes import codec

PROGRAM = "launch.rank"

_SILENCE_LIMIT_S = 13.0
"""Rank 0 reports every other second that the job is alive."""


RUNS = Path("runs")
"""Folder of the runs, in the working folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBegun(Report):
    """The job has a directory, and its ranks are about to start."""

    run_directory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkUse:
    """What the first node reported of its gradient syncs, summed over the training."""

    steps: int = 0
    """With a sync between nodes."""

    sent_bytes: int = 0
    waited_s: float = 0.0
    """Time in which it had nothing to do but wait for the sums."""

    steps_s: float = 0.0
    """Time of all steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOutcome:
    """What a job has left by its end, or by now."""

    run_directory: Path
    steps: int = 0
    epochs: tuple[EpochDone, ...] = ()
    network: NetworkUse = field(default_factory=NetworkUse)
    weights: Path | None = None
    """Of the last step; ``None`` where they were not stored."""
    checkpoint: Path | None = None
    """The last one that was written."""
    best: BestWeightsSaved | None = None
    """The weights of the best validation; ``None`` where they are not kept."""
    onnx: OnnxSaved | OnnxFailed | None = None
    """What came of the export; ``None`` where nobody wants one, or it was interrupted."""
    is_generated: bool = False
    """Whether the use case made its samples up."""

    @property
    def throughput_samples_per_s(self) -> float | None:
        """Of the last epoch that had steps; ``None`` where none had: all was done before."""
        trained = [epoch for epoch in self.epochs if epoch.samples]
        return trained[-1].throughput_samples_per_s if trained else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStopped(Report):
    """A training did not come to its end. It may be restarted now."""

    left: LaunchOutcome
    """With the checkpoint that it went on from, as long as it has written none."""

    host: str | None
    """Where files are; ``None`` for this machine."""


def run_job(
    job: Job,
    runs: Path,
    *,
    placement: Placement,
    on_report: OnReport,
    cancellation: Cancellation,
) -> LaunchOutcome:
    """Run a job to its end; report what it has left where it is stopped, or has an accident.

    Raises:
        RunDirectoryError: The files of the run cannot be made.
        LaunchError: The first host does not take the job, or no MPI can start it; nothing is left.
        UseCaseError: The use case or its data are at fault; nothing was trained, nothing is left.
        TrainingFailedError: A worker, a rank, a host or mpirun failed.
        CancelledError: The job has ended because that was asked for; or it had an accident after
            that, so that nobody may restart it.
    """
    with _explained(runs):
        directory = RunDirectory.create(runs)
    job = replace(job, run_directory=str(directory.path), networks=placement.networks)
    host = None if placement.starts_here else job.nodes[0].host
    received = _JobReports(job, directory, on_report)
    try:
        on_report(RunBegun(run_directory=job.run_directory))
        return _run(job, directory, placement, received, host, cancellation)
    except BaseException as error:
        is_accident = isinstance(error, TrainingFailedError) and error.is_accident
        if is_accident or isinstance(error, CancelledError) or not isinstance(error, Exception):
            left = replace(received.outcome, checkpoint=received.last_checkpoint)
            on_report(TrainingStopped(left=left, host=host))
        raise


def _run(
    job: Job,
    directory: RunDirectory,
    placement: Placement,
    received: _JobReports,
    host: str | None,
    cancellation: Cancellation,
) -> LaunchOutcome:
    """Run a job in its directory; ``host`` is where files are, unless that is this machine."""
    try:
        end = run_mpi(
            placement,
            PROGRAM,
            codec.encode(job, indent=1),
            directory,
            received.add,
            cancellation,
            silence_limit_s=_SILENCE_LIMIT_S,
        )
    except BaseException:
        if not (received.outcome.steps or directory.mpirun_log.exists()):
            directory.remove()  # no rank was started: it is the folder of no run
        raise
    cause = find_root_cause(end.failures, end.errors, placement.hosts)
    if cause is not None and cause.users_fault and not received.outcome.steps:
        directory.remove()
        where = f"{cause.node}: " if len(job.nodes) > 1 else ""
        raise UseCaseError(where + cause.message.partition(": ")[2])
    if cause is None and end.silence_s is not None:
        cause = explain_silence(
            end.silence_s,
            placement,
            directory.mpirun_log,
            is_stopped=end.is_stopped,
            has_reported=end.has_reported,
        )
    if cause is None and end.code == 0 and received.is_complete:
        return received.outcome
    cancelled = cancellation.make_error() if cancellation.is_requested else None
    if end.end_signal is not None:
        cancelled = cancelled or CancelledError(end.end_signal)
    has_ended_in_order = cause is None and (end.code == 0 or end.end_signal is not None)
    if cancelled is not None and has_ended_in_order and not received.is_complete:
        raise cancelled
    log, last = directory.mpirun_log, received.last_checkpoint
    if cause is not None and cause.is_not_finite:
        raise explain_not_finite(cause, last, received.outcome.best, host)
    error = explain_end(end.code, log) if cause is None else explain_root_cause(cause, log)
    if error.is_accident:
        error.checkpoint = last
    if cancelled is not None and error.is_accident:
        received.add(Warned(message=str(error)))
        raise cancelled
    raise error


class _JobReports:
    """What the ranks of a job have reported so far."""

    def __init__(self, job: Job, directory: RunDirectory, on_report: OnReport) -> None:
        workers = sum(node.plan.processes for node in job.nodes)
        self._record = EpochStatistics(workers, sum(job.node_batches))
        self._job = job
        self._metrics = directory.metrics
        self._on_report = on_report
        self.outcome = LaunchOutcome(run_directory=directory.path)

    @property
    def is_complete(self) -> bool:
        """Whether all epochs were trained."""
        done_before = self._job.checkpoint.done_epochs
        return done_before + len(self.outcome.epochs) >= self._job.epochs

    @property
    def last_checkpoint(self) -> Path | None:
        """The last one that there is: it may be the one that the job went on from."""
        before = self._job.checkpoint.resume_from
        return self.outcome.checkpoint or (None if before is None else Path(before))

    def add(self, report: Report) -> None:
        if isinstance(report, Alive):
            return
        self.outcome = self._after(report)  # first: whoever hears of it may end the job
        self._on_report(report)
        if isinstance(report, Validated) and (epoch := self._record.add_validation(report)):
            self._write(epoch)
            self.outcome = replace(self.outcome, epochs=(*self.outcome.epochs, epoch))
            self._on_report(epoch)

    def _after(self, report: Report) -> LaunchOutcome:
        """Give what the job has left after a report."""
        now, network = self.outcome, self.outcome.network
        match report:
            case Described(facts=facts):
                return replace(now, is_generated=facts.is_generated)
            case StepDone(time_s=time_s):
                self._record.add_step(report)
                network = replace(network, steps_s=network.steps_s + time_s)
                return replace(now, steps=now.steps + 1, network=network)
            case GradientsSynced():
                network = replace(
                    network,
                    steps=network.steps + report.steps,
                    sent_bytes=network.sent_bytes + report.sent_bytes,
                    waited_s=network.waited_s + report.waited_s,
                )
                return replace(now, network=network)
            case StepsFinished():
                self._record.add_finish(report)
            case WeightsSaved(path=path):
                return replace(now, weights=Path(path))
            case CheckpointSaved(path=path):
                return replace(now, checkpoint=Path(path))
            case BestWeightsSaved():
                return replace(now, best=report)
            case OnnxSaved() | OnnxFailed():
                return replace(now, onnx=report)
        return now

    def _write(self, epoch: EpochDone) -> None:
        """Add an epoch to the file of metrics; the training goes on where that is not possible."""
        shown = codec.to_builtins(epoch, null_for_nan=True)
        shown |= {"is_generated": self.outcome.is_generated}
        try:
            append_line(self._metrics, codec.encode(shown) + b"\n")
        except OSError as error:
            why = explain_os_error(error)
            self._on_report(Warned(message=f"metrics of epochs are not written: {why}"))


def next_run_directory(runs: Path) -> Path:
    """Name the folder of the next run; nothing is made.

    Raises:
        RunDirectoryError: What the folder of all runs holds cannot be seen.
    """
    with _explained(runs):
        return RunDirectory.find_next(runs).path


@contextmanager
def _explained(runs: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunDirectoryError(
            f"folder {runs.absolute()} for the files of the run: {reason_of(error)}: "
            "start in a folder where it can be made"
        ) from error
