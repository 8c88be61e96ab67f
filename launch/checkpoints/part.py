"""What does one worker write into a checkpoint? What it holds and no other worker writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from launch.checkpoints.held import HeldOptimizer, HeldPiece, HeldState
from launch.checkpoints.values import KeepTensor, encode
from launch.errors import CheckpointError
from launch.training.shared_parameters import flat_view, is_dense

NOT_SETTINGS = frozenset({"params", "fused", "foreach", "capturable"})
"""Of a parameter group: what belongs to the plan, not to the training."""

_PER_PARAMETER = frozenset({"step", "eta", "mu", "mu_product"})
"""What torch's optimizers keep once a parameter, though its shape may be that of a scalar one."""


@dataclass(frozen=True, slots=True)
class WorkerPart:
    """What one worker writes."""

    weights: Mapping[str, Tensor] = field(default_factory=dict)
    """Under their names in the model's ``state_dict``."""

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    """Those that ``document`` names."""

    document: Mapping[str, Any] | None = None
    """Optimizers, schedules and what else a model keeps, as JSON has it."""


def make_part(held: HeldState, schedules: Sequence[LRScheduler]) -> WorkerPart:
    """Gather what a worker writes. Nothing is copied: it is to be written before the next step.

    Args:
        held: What the worker's step holds.
        schedules: Those that the worker drives, in the order of its optimizers.

    Raises:
        CheckpointError: Something cannot be kept, because of what it is, not of its value: so
            that a call before the first step finds it out.
    """
    state = held.models[0].state_dict(keep_vars=True)
    written = {name: state[name] for name in held.weights}
    weights = {name: value for name, value in written.items() if isinstance(value, Tensor)}
    others = {name: value for name, value in written.items() if name not in weights}
    tensors: dict[str, Tensor] = {}
    what = "the model's state"
    document: dict[str, Any] = {"others": encode(others, what, _keeper(what, tensors))}
    if held.writes_optimizers:
        document["optimizers"] = [_describe(each, tensors) for each in held.optimizers]
        document["schedules"] = [_describe_schedule(schedule) for schedule in schedules]
    elif not others:
        return WorkerPart(weights)
    return WorkerPart(weights, tensors, document)


def is_per_element(value: Any, owned: Tensor, key: str) -> bool:
    """Whether a state has a value for each element of what an optimizer updates."""
    if not isinstance(value, Tensor) or value.shape != owned.shape:
        return False
    return value.dim() > 0 or key not in _PER_PARAMETER


def _describe(held: HeldOptimizer, tensors: dict[str, Tensor]) -> dict[str, Any]:
    optimizer = held.optimizer
    kind = type(optimizer).__name__
    if type(optimizer).state_dict is not Optimizer.state_dict:
        raise CheckpointError(
            f"optimizer {kind} has a state_dict() of its own, of whose state nobody else knows to "
            "which parameter it belongs: keep torch's, or leave --checkpoint out"
        )
    parameters: dict[str, dict[str, Any]] = {}
    for piece in held.pieces:
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
            for names, group in zip(held.names, optimizer.param_groups, strict=True)
        ],
        "parameters": parameters,
        "loose": encode(loose, f"optimizer {kind}: state"),
    }


def _settings(group: Mapping[str, Any], what: str) -> dict[str, Any]:
    settings = {}
    for key, value in group.items():
        if key not in NOT_SETTINGS:
            is_rate = isinstance(value, Tensor) and value.dim() == 0
            settings[key] = encode(value.item() if is_rate else value, f"{what}: {key}")
    return settings


def _describe_piece(
    piece: HeldPiece, state: Mapping[str, Any], tensors: dict[str, Tensor]
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
            values[key] = encode(value, what, _keeper(name, tensors))
    return {
        "start": piece.start,
        "count": piece.owned.numel(),
        "elements": elements,
        "values": values,
    }


def _keeper(prefix: str, tensors: dict[str, Tensor]) -> KeepTensor:
    def keep(tensor: Tensor) -> str:
        name = f"{prefix}:{len(tensors)}"
        tensors[name] = tensor
        return name

    return keep


def _describe_schedule(schedule: LRScheduler) -> dict[str, Any]:
    kind = type(schedule).__name__
    return {
        "kind": kind,
        "groups": len(schedule.optimizer.param_groups),
        "state": encode(schedule.state_dict(), f"schedule {kind}"),
    }
