"""Where checkpoints are written, and from which one a training resumes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from launch.checkpoints.folder import find_latest, list_checkpoints
from launch.checkpoints.manifest import Manifest
from launch.errors import CheckpointError
from planner.errors import UsageError
from planner.jobs.launch_request import LaunchRequest


def resolve_resume(
    request: LaunchRequest, warn: Callable[[str], None]
) -> tuple[LaunchRequest, dict[str, int]]:
    """Find the checkpoint to resume from, if the user wants that; give the request as it says.

    Its seed counts, and where the user names no global batch, its global batch, and the shares of
    its hosts as long as all of them are there: so every step is what it would have been.

    Returns:
        The request, with the folder as an absolute path, and the shares of the checkpoint's hosts:
        none where there is no checkpoint, or the user wants others.

    Raises:
        UsageError: The options do not fit together.
        CheckpointError: There is no usable checkpoint, it is one of another training, or there is
            one that would be lost.
    """
    check_resume(request)
    if request.checkpoint.folder is None:
        return request, {}
    folder = Path(request.checkpoint.folder)
    checkpoint = replace(request.checkpoint, folder=str(folder.absolute()))
    if not request.resume:
        _check_empty(folder)
        return replace(request, checkpoint=checkpoint), {}
    found = find_latest(folder)
    for warning in found.warnings:
        warn(warning)
    manifest = found.manifest
    _check_same(request, found.path, manifest)
    checkpoint = replace(
        checkpoint, resume_from=str(found.path.absolute()), done_epochs=manifest.epoch
    )
    same = replace(
        request,
        workload=replace(request.workload, seed=manifest.seed),
        global_batch=request.global_batch or manifest.global_batch,
        checkpoint=checkpoint,
    )
    return same, _shares(request, manifest)


def check_resume(request: LaunchRequest) -> None:
    """Check that a training which is to be resumed has a folder of checkpoints.

    Raises:
        UsageError: It has none.
    """
    if request.resume and request.checkpoint.folder is None:
        raise UsageError("--resume and no --checkpoint: name the folder of the checkpoints")


def _shares(request: LaunchRequest, manifest: Manifest) -> dict[str, int]:
    """Give the hosts of a checkpoint with their shares, where the user names no others."""
    if request.global_batch is not None or request.all_hosts or not manifest.hosts:
        return {}
    return dict(zip(manifest.hosts, manifest.node_batches, strict=True))


def _check_empty(folder: Path) -> None:
    if existing := list_checkpoints(folder):
        raise CheckpointError(
            f"{folder} holds checkpoints of a training already, the newest is {existing[0].name}: "
            "go on with --resume, or name another folder"
        )


def _check_same(request: LaunchRequest, path: Path, manifest: Manifest) -> None:
    use_case = request.workload.use_case
    if Path(manifest.use_case).name != Path(use_case).name:  # it may lie elsewhere by now
        raise CheckpointError(
            f"checkpoint {path} is one of {manifest.use_case}, not of {use_case}: name the "
            "folder of this use case"
        )
    done = manifest.epoch + (manifest.position > 0)
    if done > request.epochs:
        raise CheckpointError(
            f"--epochs {request.epochs} and checkpoint {path} of epoch {done}: use --epochs {done} "
            "or more"
        )
