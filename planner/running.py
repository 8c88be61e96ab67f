"""What came of a job? It is run to its end, and what it reports is gathered."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from launch.epoch import EpochRecord
from launch.errors import UseCaseError
from launch.job import Job
from launch.mpi.job import MpiJob
from launch.patience import Patience
from launch.run_directory import RunDirectory, append_line
from launch.workers.reports import (
    Alive,
    CheckpointSaved,
    EndWished,
    EpochDone,
    JobFailed,
    Report,
    StepDone,
    StepsFinished,
    Validated,
    Warned,
    WeightsSaved,
)
from planner.errors import RunDirectoryError, TrainingFailedError
from planner.first_cause import find_cause
from planner.interruption import Interruption
from planner.job_end import explain_cause, explain_end, explain_silence
from planner.placement import Placement

_LOOK_S = 1.0
_START_LIMIT_S = 180.0
"""Until a rank has spoken; the hosts were found well, but a busy one may take its time."""

_SILENCE_LIMIT_S = 13.0
"""From then on rank 0 says every other second that it is alive."""

_CAUSE_LIMIT_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOutcome:
    """What a finished job left."""

    run_directory: Path
    weights: Path | None
    epochs: tuple[EpochDone, ...]
    checkpoint: Path | None = None
    """The last one that was written."""


def launch_command(
    directory: RunDirectory,
    placement: Placement,
    environment: Mapping[str, str],
    job_file: Path | None = None,
) -> list[str]:
    """Give the command that runs the job of a directory, as an argument list.

    Args:
        directory: Of the run.
        placement: Where the ranks start.
        environment: Variables that the command will be started with.
        job_file: Where the first host finds the job, if not in the directory.
    """
    program = ["launch.rank", str(job_file or directory.job)]
    return placement.command(program, directory, environment)


def run_job(
    job: Job, runs: Path, *, placement: Placement, on_report: Callable[[Report], None]
) -> LaunchOutcome:
    """Run a job to its end.

    Where a signal has asked for that end, or an accident has come before it could, the signal has
    its usual effect: nobody may go on after it.

    Raises:
        RunDirectoryError: The files of the run cannot be made.
        UseCaseError: The use case or its data are at fault; nothing was trained, nothing is left.
        TrainingFailedError: A worker, a rank, a host or mpirun failed.
    """
    directory = _run_directory(runs)
    job = replace(job, run_directory=str(directory.path), networks=placement.networks)
    write_private(directory.job, job.encode())
    job_file = placement.prepare(directory)
    heard = _Heard(job, directory, on_report)
    command, log = launch_command(directory, placement, os.environ, job_file), directory.mpirun_log
    with (
        MpiJob(command, log) as running,
        Interruption(running, on_report) as interruption,
    ):
        silent_s = _listen(running, heard, interruption)
        if silent_s is not None:
            heard.failures.append(_find_silent(silent_s, running, heard, placement, log))
        if heard.failures:
            running.stop()
        code = running.wait()
    cause = find_cause(heard.failures, log.read_text(errors="replace"), placement.hosts)
    if cause is not None and cause.users_fault and not heard.has_trained:
        directory.remove()
        where = f"{cause.node}: " if len(job.nodes) > 1 else ""
        raise UseCaseError(where + cause.message.partition(": ")[2])
    if cause is not None:
        _fail(explain_cause(cause, log), interruption, on_report)
    if not heard.is_complete and (code == 0 or heard.end_signal is not None):
        interruption.give_effect()
    if code != 0 or not heard.is_complete:
        _fail(explain_end(code, log), interruption, on_report)
    return LaunchOutcome(
        run_directory=directory.path,
        weights=heard.weights,
        epochs=tuple(heard.epochs),
        checkpoint=heard.checkpoint,
    )


def _listen(running: MpiJob, heard: _Heard, interruption: Interruption) -> float | None:
    """Hear a job to its end, or until it is to be ended; give the seconds of a silence too long.

    A job that has failed ends by itself, and more of the cause may be heard until then; but not
    where a host does not answer, for which mpirun waits.
    """
    patience, give_up = Patience(), float("inf")
    while not running.is_over and time.monotonic() < give_up:
        report = running.next_report(_LOOK_S)
        silent_s = patience.look()
        if report is not None:
            patience.restart()
            heard.add(report)
            interruption.has_begun = heard.has_trained
            if heard.end_signal is not None:
                interruption.note(heard.end_signal)
        elif silent_s > (limit_s := _SILENCE_LIMIT_S if heard.has_spoken else _START_LIMIT_S):
            return limit_s
        if heard.failures and give_up == float("inf"):
            give_up = time.monotonic() + _CAUSE_LIMIT_S
    return None


def _find_silent(
    silent_s: float, running: MpiJob, heard: _Heard, placement: Placement, log: Path
) -> JobFailed:
    """Say who is silent, or why: mpirun may know. What it says from now on is of our ending it."""
    cause = find_cause(heard.failures, log.read_text(errors="replace"), placement.hosts)
    if cause is None:
        is_stopped, has_spoken = running.is_stopped, heard.has_spoken
        cause = explain_silence(
            silent_s, placement, log, is_stopped=is_stopped, has_spoken=has_spoken
        )
    return replace(cause, is_consequence=False)


def _fail(
    error: TrainingFailedError, interruption: Interruption, on_report: Callable[[Report], None]
) -> NoReturn:
    """Raise an error; but an accident that has come after a signal must not be gone on after."""
    if error.is_accident and interruption.is_pending:
        on_report(Warned(message=str(error)))
        interruption.give_effect()
    raise error


class _Heard:
    """What the ranks of a job have said so far."""

    def __init__(
        self, job: Job, directory: RunDirectory, on_report: Callable[[Report], None]
    ) -> None:
        self._record = EpochRecord(sum(node.plan.processes for node in job.nodes))
        self._num_epochs = job.epochs - job.keeping.done_epochs
        self._metrics = directory.metrics
        self._on_report = on_report
        self.epochs: list[EpochDone] = []
        self.weights: Path | None = None
        self.checkpoint: Path | None = None
        self.failures: list[JobFailed] = []
        self.end_signal: int | None = None
        """By which the ranks themselves were asked to end, where they have done so."""
        self.has_spoken = False
        self.has_trained = False

    @property
    def is_complete(self) -> bool:
        """Whether all epochs were trained."""
        return len(self.epochs) >= self._num_epochs

    def add(self, report: Report) -> None:
        self.has_spoken = True
        if isinstance(report, Alive):
            return
        self._on_report(report)
        match report:
            case StepDone():
                self.has_trained = True
                self._record.add_step(report)
            case StepsFinished():
                self._record.add_finish(report)
            case Validated():
                if epoch := self._record.add_validation(report):
                    append_line(self._metrics, json.dumps(epoch.to_json()).encode() + b"\n")
                    self.epochs.append(epoch)
                    self._on_report(epoch)
            case WeightsSaved(path=path):
                self.weights = Path(path)
            case CheckpointSaved(path=path):
                self.checkpoint = Path(path)
            case EndWished(signal=number):
                self.end_signal = number
            case JobFailed():
                self.failures.append(report)


def _run_directory(runs: Path) -> RunDirectory:
    try:
        return RunDirectory.create(runs)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise RunDirectoryError(
            f"folder {runs.absolute()} for the files of the run: {reason}: "
            "start in a folder where it can be made"
        ) from error


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only the user can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
