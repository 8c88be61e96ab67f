"""Resuming of a stored training: the options of the job that goes on from its checkpoint."""

from __future__ import annotations

import platform
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from launch.checkpoints.folder import list_checkpoints
from launch.errors import CheckpointError
from planner.errors import ConflictError, RefusedError
from planner.records.job_record import JobRecord
from planner.records.training_record import TrainingRecord, TrainingStatus

_GOES_ON = (
    "plan",
    "effective_batch",
    "lr_scaling",
    "allow_stale",
    "checkpoint_every",
    "max_restarts",
    "hang_timeout",
    "allow_nan",
    "keep_best",
    "no_noise_scale",
    "keep_shares",
    "wire",
    "all_reduce",
)
"""Options of the job before that hold for the next one too. None of them is a file or a program:
a database that several people write to must not say what is run here."""


def options_that_go_on(before: Mapping[str, Any]) -> dict[str, Any]:
    """Give the options of the job before, if one ran the training, that hold for the next one."""
    return {option: before[option] for option in _GOES_ON if before.get(option)}


def check_resumable(training: TrainingRecord) -> Path:
    """Give the folder of the checkpoints from which a training can go on here.

    Raises:
        ConflictError: It cannot be resumed as it is.
    """
    name = f"training {training.id}"
    if training.state in (TrainingStatus.RUNNING, TrainingStatus.DONE):
        raise ConflictError(f"{name} is {training.state}: nothing is left to resume")
    if training.machine != platform.node():
        raise ConflictError(f"{name} was started on {training.machine}: resume it there")
    if training.checkpoint is None:
        raise ConflictError(f"{name} wrote no checkpoint: start it anew")
    folder = Path(training.checkpoint).parent
    if not _has_checkpoint(folder):
        raise ConflictError(f"{name}: there is no checkpoint in {folder} any more: start it anew")
    return folder


def resume_request(
    training: TrainingRecord,
    jobs: Collection[JobRecord],
    *,
    use_cases: Collection[str] | None,
    where: Mapping[str, Any],
    hosts: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Give the options by which ``launch`` goes on with a training.

    Args:
        training: In its true state.
        jobs: That are open, and the one that ran it, where one did.
        use_cases: Whose code may run; ``None`` for any.
        where: Options that say how machines are reached.
        hosts: Options that name hosts, for a training of several; ``None`` where there are none.

    Raises:
        ConflictError: It cannot be resumed as it is.
        RefusedError: Its use case is none of these.
    """
    name = f"training {training.id}"
    folder = check_resumable(training)
    if use_cases is not None and training.use_case not in use_cases:
        raise RefusedError(
            f"{name} is one of {training.use_case}: start the server with that as --use-case"
        )
    for job in jobs:
        if not job.state.is_over and job.request.get("checkpoint") == str(folder):
            raise ConflictError(f"job {job.id} goes on with {name} already")
    if len(training.hosts) > 1 and hosts is None:
        raise ConflictError(
            f"{name} is one of {len(training.hosts)} hosts: start the server with --hosts, or run "
            "ddlplan launch --resume"
        )
    ran = next((job for job in jobs if job.training_id == training.id), None)
    before = {} if ran is None else ran.request
    chosen = hosts if hosts is not None and len(training.hosts) > 1 else {}
    return {
        "use_case": training.use_case,
        **({} if training.data is None else {"data": training.data}),
        "epochs": training.epochs,
        **options_that_go_on(before),
        "checkpoint": str(folder),
        "resume": True,
        **where,
        **chosen,
    }


def _has_checkpoint(folder: Path) -> bool:
    try:
        return bool(list_checkpoints(folder))
    except CheckpointError:
        return False
