"""Where is a training kept, and where does it go on? As the user and the folder have it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from launch.checkpoints.folder import find_latest, list_checkpoints
from launch.errors import CheckpointError
from planner.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from launch.checkpoints.manifest import Manifest
    from planner.job_making import LaunchRequest


def find_start(request: LaunchRequest, warn: Callable[[str], None]) -> LaunchRequest:
    """Give what the user wants, with what the checkpoint says that is gone on from, if any.

    Its seed counts, and where the user names no global batch, its global batch, and the shares of
    its hosts as long as all of them are there: so every step is what it would have been.

    Raises:
        UsageError: The options do not fit together.
        CheckpointError: There is no usable checkpoint, it is one of another training, or there is
            one that would be lost.
    """
    folder = request.checkpoint
    if folder is None:
        if request.resumes:
            raise UsageError("--resume and no --checkpoint: name the folder of the checkpoints")
        return request
    if not request.resumes:
        _check_empty(folder)
        return request
    found = find_latest(folder)
    for warning in found.warnings:
        warn(warning)
    manifest = found.manifest
    _check_same(request, found.path, manifest)
    return replace(
        request,
        seed=manifest.seed,
        global_batch=request.global_batch or manifest.global_batch,
        resume=found.path.absolute(),
        done_epochs=manifest.epoch,
        kept_shares=_shares(request, manifest),
    )


def _shares(request: LaunchRequest, manifest: Manifest) -> dict[str, int] | None:
    """Give the hosts of a checkpoint with their shares, where the user names no others."""
    if request.global_batch is not None or request.all_hosts or not manifest.hosts:
        return None
    return dict(zip(manifest.hosts, manifest.node_batches, strict=True))


def _check_empty(folder: Path) -> None:
    if kept := list_checkpoints(folder):
        raise CheckpointError(
            f"{folder} holds checkpoints of a training already, the newest is {kept[0].name}: "
            "go on with --resume, or name another folder"
        )


def _check_same(request: LaunchRequest, path: Path, manifest: Manifest) -> None:
    if manifest.use_case != request.use_case:
        raise CheckpointError(
            f"checkpoint {path} is one of {manifest.use_case}, not of {request.use_case}: name the "
            "folder of this use case"
        )
    done = manifest.epoch + (manifest.position > 0)
    if done > request.epochs:
        raise CheckpointError(
            f"--epochs {request.epochs} and checkpoint {path} of epoch {done}: use --epochs {done} "
            "or more"
        )
