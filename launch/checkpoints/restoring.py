"""Restoring of a worker from a checkpoint, into the layout of its own plan."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler

from launch.checkpoints.checkpoint import Checkpoint
from launch.checkpoints.training_state import OptimizerParts, OptimizerPiece, TrainingState
from launch.checkpoints.worker_part import is_per_element
from launch.errors import CheckpointError
from launch.local_group.shared_parameters import copy_piece

_RATES = ("lr", "initial_lr")
"""Settings that `launch.training.schedule.scale_learning_rates` scales with the batch."""


def restore(
    live: TrainingState,
    schedules: Sequence[LRScheduler],
    checkpoint: Checkpoint,
    *,
    global_batch: int,
) -> None:
    """Restore a worker that has made no step yet to the state of a checkpoint.

    Every worker of the node does it; none may make a step before all have done.

    Args:
        live: State of the worker's step.
        schedules: Of the worker, freshly made.
        checkpoint: To restore from.
        global_batch: Of this job. A schedule counts steps: where the checkpoint's steps had another
            size, it resumes from where it would be had all had this one. A learning rate without a
            schedule, which may go with that size, is then this job's.

    Raises:
        CheckpointError: It is one of another model or optimizer.
    """
    _restore_models(live, checkpoint)
    is_same_batch = global_batch == checkpoint.manifest.global_batch
    stored = [
        _find_schedule_state(each, checkpoint) if is_same_batch else None for each in schedules
    ]
    takes_settings = None not in stored
    try:
        for optimizer in live.optimizers:
            _restore_optimizer(optimizer, checkpoint, settings=takes_settings, rates=is_same_batch)
        for schedule, state in zip(schedules, stored, strict=True):
            if takes_settings and state is not None:
                schedule.load_state_dict(state)
            else:
                _advance(schedule, checkpoint.manifest.steps_of(global_batch))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:400]
        raise CheckpointError(
            f"the checkpoint does not fit the optimizer or its schedule ({reason}): use the use "
            "case that it was made with"
        ) from error


def _restore_models(live: TrainingState, checkpoint: Checkpoint) -> None:
    state = checkpoint.model_state()
    for model in live.models:
        try:
            model.load_state_dict(state)
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:400]
            raise CheckpointError(
                f"the checkpoint is one of another model ({reason}): use the use case that it was "
                "made with"
            ) from error


def _find_schedule_state(schedule: LRScheduler, checkpoint: Checkpoint) -> dict[str, Any] | None:
    """Find the state of a schedule of this kind and number of parameter groups."""
    wanted = (type(schedule).__name__, len(schedule.optimizer.param_groups))
    return next(
        (state for kind, groups, state in checkpoint.schedules if (kind, groups) == wanted), None
    )


def _advance(schedule: LRScheduler, steps: int) -> None:
    """Advance a fresh schedule by so many steps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the optimizer has made no step
        for _ in range(steps):
            schedule.step()


@torch.no_grad()
def _restore_optimizer(
    live: OptimizerParts, checkpoint: Checkpoint, *, settings: bool, rates: bool
) -> None:
    optimizer = live.optimizer
    kind = type(optimizer).__name__
    if checkpoint.optimizer_kinds != {kind}:
        made = ", ".join(sorted(checkpoint.optimizer_kinds)) or "no optimizer"
        raise CheckpointError(
            f"the checkpoint is one of {made} and the use case makes {kind}: use the use case "
            "that it was made with"
        )
    group_of: dict[str, Mapping[str, Any]] = {}
    for group, names in zip(optimizer.param_groups, live.names, strict=True):
        group_of.update(dict.fromkeys(names, group))
        if settings and (found := checkpoint.settings_of(list(names))):
            _set(group, {key: one for key, one in found.items() if rates or key not in _RATES})
    last, whole = "", dict[str, Any]()
    for piece in live.pieces:
        if piece.name != last:  # the pieces of a parameter follow one another
            last, whole = piece.name, checkpoint.optimizer_state(piece.name)
        state = {
            key: _part_of(value, key, piece, group_of.get(piece.name, {}))
            for key, value in whole.items()
            if value is not None  # as torch has it where there was no gradient yet
        }
        if state:
            optimizer.state[piece.owned].update(state)
    optimizer.state.update(checkpoint.loose_state)  # type: ignore[arg-type]


def _set(group: dict[str, Any], settings: Mapping[str, Any]) -> None:
    for key, value in settings.items():
        if isinstance(group.get(key), Tensor):
            group[key].fill_(value)
        else:
            group[key] = value


def _part_of(value: Any, key: str, piece: OptimizerPiece, group: Mapping[str, Any]) -> Any:
    """Return a piece's part of a state, on the device and in the layout of the optimizer."""
    if not isinstance(value, Tensor):
        return value
    if key == "step" and not (group.get("capturable") or group.get("fused")):
        return value.clone()  # torch counts on the CPU unless the GPU is to do everything
    if not is_per_element(value, piece.parameter, key):
        return value.clone().to(piece.owned.device)
    return copy_piece(value, piece.parameter, piece.start, piece.owned)
