"""Part of a checkpoint that one worker writes: the state that no other worker writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from launch.checkpoints.tagged_values import encode, store_in
from launch.checkpoints.training_state import OptimizerParts, OptimizerPiece, TrainingState
from launch.errors import CheckpointError
from launch.local_group.shared_parameters import flat_view, is_dense

_NOT_SETTINGS = frozenset({"params", "fused", "foreach", "capturable"})
"""Keys of a parameter group that belong to the plan, not to the training."""

_PER_PARAMETER = frozenset({"step", "eta", "mu", "mu_product"})
"""State that torch's optimizers have once per parameter, even where the parameter is a scalar."""


@dataclass(frozen=True, slots=True)
class WorkerPart:
    """One worker's part of a checkpoint."""

    weights: Mapping[str, Tensor] = field(default_factory=dict)
    """Under their names in the model's ``state_dict``."""

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    """Tensors that ``document`` names."""

    document: Mapping[str, Any] | None = None
    """Optimizers, schedules and other state of the model, as JSON."""


def make_part(
    live: TrainingState,
    schedules: Sequence[LRScheduler],
    errors: Mapping[str, Tensor] | None = None,
) -> WorkerPart:
    """Gather what a worker writes. Nothing is copied: write it before the next step.

    Args:
        live: State of the worker's step.
        schedules: Of the worker, in the order of its optimizers.
        errors: What messages to other nodes have not said yet, by parameter.

    Raises:
        CheckpointError: Something has a type that cannot be stored. It does not depend on
            values, so a call before the first step finds it out.
    """
    state = live.models[0].state_dict(keep_vars=True)
    written = {name: state[name] for name in live.weights}
    weights = {name: value for name, value in written.items() if isinstance(value, Tensor)}
    others = {name: value for name, value in written.items() if name not in weights}
    tensors: dict[str, Tensor] = {}
    what = "the model's state"
    document: dict[str, Any] = {"others": encode(others, what, store_in(tensors, what))}
    if live.writes_optimizers:
        try:
            document["optimizers"] = [_describe(each, tensors) for each in live.optimizers]
            document["schedules"] = [_describe_schedule(schedule) for schedule in schedules]
        except CheckpointError as error:
            raise CheckpointError(f"{error}, or leave --checkpoint out") from error
    elif not others and not errors:
        return WorkerPart(weights)
    for name, late in (errors or {}).items():
        tensors[f"{name}:error"] = late
        document.setdefault("errors", {})[name] = f"{name}:error"
    return WorkerPart(weights, tensors, document)


def is_per_element(value: Any, owned: Tensor, key: str) -> bool:
    """Whether a state has a value for each element of what an optimizer updates."""
    if not isinstance(value, Tensor) or value.shape != owned.shape:
        return False
    return value.dim() > 0 or key not in _PER_PARAMETER


def _describe(live: OptimizerParts, tensors: dict[str, Tensor]) -> dict[str, Any]:
    optimizer = live.optimizer
    kind = type(optimizer).__name__
    if type(optimizer).state_dict is not Optimizer.state_dict:
        raise CheckpointError(
            f"optimizer {kind} has a state_dict() of its own, of whose state nobody else knows to "
            "which parameter it belongs: keep torch's"
        )
    parameters: dict[str, dict[str, Any]] = {}
    for piece in live.pieces:
        if state := optimizer.state.get(piece.owned):
            shape, strides = list(piece.parameter.shape), None
            if piece.owned is not piece.parameter and is_dense(piece.parameter):
                strides = list(piece.parameter.stride())
            parameter = parameters.setdefault(
                piece.name, {"shape": shape, "strides": strides, "pieces": []}
            )
            parameter["pieces"].append(_describe_piece(piece, state, tensors))
    loose = {key: value for key, value in optimizer.state.items() if not isinstance(key, Tensor)}
    return {
        "kind": kind,
        "groups": [
            {"names": list(names), "settings": _settings(group, f"optimizer {kind}")}
            for names, group in zip(live.names, optimizer.param_groups, strict=True)
        ],
        "parameters": parameters,
        "loose": encode(loose, f"optimizer {kind}: state"),
    }


def _settings(group: Mapping[str, Any], what: str) -> dict[str, Any]:
    settings = {}
    for key, value in group.items():
        if key not in _NOT_SETTINGS:
            is_rate = isinstance(value, Tensor) and value.dim() == 0
            settings[key] = encode(value.item() if is_rate else value, f"{what}: {key}")
    return settings


def _describe_piece(
    piece: OptimizerPiece, state: Mapping[str, Any], tensors: dict[str, Tensor]
) -> dict[str, Any]:
    elements: dict[str, str] = {}
    values: dict[str, Any] = {}
    for key, value in state.items():
        name = f"{piece.name}:{key}:{piece.start}"
        if is_per_element(value, piece.owned, key):
            tensors[name] = value if piece.owned is piece.parameter else flat_view(value)
            elements[key] = name
        else:
            what = f"the optimizer's {key} of {piece.name}"
            values[key] = encode(value, what, store_in(tensors, name))
    return {
        "start": piece.start,
        "count": piece.owned.numel(),
        "elements": elements,
        "values": values,
    }


def _describe_schedule(schedule: LRScheduler) -> dict[str, Any]:
    kind = type(schedule).__name__
    return {
        "kind": kind,
        "groups": len(schedule.optimizer.param_groups),
        "state": encode(schedule.state_dict(), f"schedule {kind}"),
    }
