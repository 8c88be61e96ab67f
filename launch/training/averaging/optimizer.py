"""Optimizer of a step: the use case's, fused where the plan says so."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import signature
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer

from launch.errors import InvalidPlanError, UseCaseError
from launch.plan import Plan
from launch.use_cases._base import UseCase

_FUSED = (SGD, Adam, AdamW, Adagrad)
"""Optimizers that torch has in a fused form, on CPU and GPU. By exact class."""


def make_optimizer(
    plan: Plan, case: UseCase, parameters: Iterable[nn.Parameter], model: nn.Module
) -> Optimizer:
    """Make the use case's optimizer, fused where the plan says so.

    Args:
        plan: The plan.
        case: The use case.
        parameters: That it is to update.
        model: Whose parameters it may have kept to choose among them.

    Raises:
        InvalidPlanError: The plan asks for a fused form, and there is none.
        UseCaseError: A step cannot drive it.
    """
    optimizer = case.optimizer(iter(parameters))
    check_optimizer(optimizer, model)
    if not plan.fused_optimizer:
        return optimizer
    if obstacle := _fused_obstacle(optimizer):
        raise InvalidPlanError(f"fused_optimizer=True and {obstacle}: use fused_optimizer=False")
    return _make_fused(optimizer)


def check_optimizer(optimizer: Optimizer, model: nn.Module) -> None:
    """Refuse an optimizer that a step cannot drive.

    Its step must not evaluate the model by itself, as that of LBFGS does. And it must train nothing
    beside the model: no step would clear or divide such gradients, and workers that share
    parameters would not update it.

    Raises:
        UseCaseError: It does one of these.
    """
    try:
        signature(optimizer.step).bind()
    except TypeError as error:
        raise UseCaseError(
            f"optimizer {type(optimizer).__name__} wants to evaluate the model by itself in each "
            f"step ({error}): use one whose step() needs gradients alone"
        ) from error
    known = set(map(id, model.parameters()))
    trained = [one for group in optimizer.param_groups for one in group["params"]]
    others = [one for one in trained if one.requires_grad and id(one) not in known]
    if others:
        raise UseCaseError(
            f"optimizer {type(optimizer).__name__} trains a tensor of shape "
            f"{tuple(others[0].shape)} that is no parameter of the model: make it a part of "
            "model(), and take from optimizer(parameters) what it trains"
        )


def has_fused_form(optimizer: Optimizer) -> bool:
    """Return whether `make_optimizer` could fuse this one."""
    return _fused_obstacle(optimizer) is None


def _fused_obstacle(optimizer: Optimizer) -> str | None:
    name = type(optimizer).__name__
    if type(optimizer) not in _FUSED:
        known = ", ".join(kind.__name__ for kind in _FUSED)
        return f"optimizer {name}, where torch fuses {known}"
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        return f"optimizer {name} with hooks, which another optimizer would not have"
    for group in optimizer.param_groups:
        if group["differentiable"]:
            return f"optimizer {name} with differentiable=True"
        if group.get("momentum") and group.get("dampening"):
            return f"optimizer {name} with dampening={group['dampening']}"
        if not all(parameter.is_floating_point() for parameter in group["params"]):
            return f"optimizer {name} of parameters that are not floating-point"
    return None


def _make_fused(optimizer: Optimizer) -> Optimizer:
    """Make the same optimizer in its fused form, each group with its own settings."""
    kind = type(optimizer)
    fused: dict[str, Any] = {"fused": True, "foreach": None}
    allowed = signature(kind).parameters
    settings = {key: value for key, value in optimizer.defaults.items() if key in allowed}
    groups = [group | fused for group in optimizer.param_groups]
    remade: Optimizer = kind(groups, **(settings | fused))
    if kind is SGD:
        _start_momentum(remade)
    return remade


def _start_momentum(optimizer: Optimizer) -> None:
    """Set the momentum to zero, from which the first step gives the same as from none.

    torch's fused SGD fails in a step where some parameters have a momentum and others, which had
    no gradient before, have none (torch 2.15).
    """
    for group in optimizer.param_groups:
        if group["momentum"]:
            for parameter in group["params"]:
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
