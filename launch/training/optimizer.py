"""Which optimizer does a step drive? The use case's, in the form that the plan asks for."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn
from torch.optim import Optimizer

from launch.plan import Plan
from launch.use_cases._base import UseCase


def make_optimizer(plan: Plan, case: UseCase, parameters: Iterable[nn.Parameter]) -> Optimizer:
    """Make the use case's optimizer, fused where the plan says so."""
    return case.optimizer(parameters)
