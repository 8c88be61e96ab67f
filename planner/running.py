"""What came of a job? It is run to its end, and what it reports is gathered."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from launch.epoch import EpochRecord
from launch.errors import UseCaseError
from launch.job import Job
from launch.mpi.job import MpiJob
from launch.run_directory import RunDirectory, append_line
from launch.workers.reports import (
    EpochDone,
    JobFailed,
    Report,
    StepDone,
    Validated,
    WeightsSaved,
)
from planner.errors import RunDirectoryError, TrainingFailedError
from planner.placement import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOutcome:
    """What a finished job left."""

    run_directory: Path
    weights: Path | None
    epochs: tuple[EpochDone, ...]


def launch_command(
    directory: RunDirectory, placement: Placement, environment: Mapping[str, str]
) -> list[str]:
    """Give the command that runs the job of a directory, as an argument list."""
    return placement.command(["launch.rank", str(directory.job)], directory, environment)


def run_job(
    job: Job, runs: Path, *, placement: Placement, on_report: Callable[[Report], None]
) -> LaunchOutcome:
    """Run a job to its end.

    Raises:
        RunDirectoryError: The files of the run cannot be made.
        UseCaseError: The use case or its data are at fault; nothing was trained, nothing is left.
        TrainingFailedError: A worker failed, or mpirun did.
    """
    directory = _run_directory(runs)
    job = replace(job, run_directory=str(directory.path))
    write_private(directory.job, job.encode())
    placement.prepare(directory)
    record = EpochRecord(sum(node.plan.processes for node in job.nodes))
    epochs: list[EpochDone] = []
    weights: Path | None = None
    failure: JobFailed | None = None
    has_trained = False
    command = launch_command(directory, placement, os.environ)
    with MpiJob(command, directory.mpirun_log) as running:
        for report in running.reports():
            on_report(report)
            match report:
                case StepDone():
                    has_trained = True
                    record.add_step(report)
                case Validated():
                    if epoch := record.add_validation(report):
                        line = json.dumps(epoch.to_json()).encode() + b"\n"
                        append_line(directory.metrics, line)
                        epochs.append(epoch)
                        on_report(epoch)
                case WeightsSaved(path=path):
                    weights = Path(path)
                case JobFailed():
                    failure = failure or report
        code = running.wait()
    if failure is not None and failure.users_fault and not has_trained:
        directory.remove()
        raise UseCaseError(failure.message.partition(": ")[2])
    if failure is not None:
        raise TrainingFailedError(_explain(failure), log_tail=failure.log_tail)
    if code != 0 or len(epochs) < job.epochs:
        log = directory.mpirun_log
        raise TrainingFailedError(
            f"mpirun ended with exit code {code} before the training did: see {log}",
            log_tail=_tail(log),
        )
    return LaunchOutcome(run_directory=directory.path, weights=weights, epochs=tuple(epochs))


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


def _explain(failed: JobFailed) -> str:
    if failed.workers == 0:
        return f"{failed.node}: {failed.message}"
    where = f"worker {failed.worker} of {failed.workers} on {failed.node}"
    return f"{where}: {failed.message}: see {failed.log}"


def _tail(path: Path, lines: int = 20) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
