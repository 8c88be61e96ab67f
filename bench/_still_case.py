"""A built-in use case whose weights stay what they are, for figures of one point of a training."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from safetensors.torch import load_file
from torch import nn
from torch.optim import Optimizer

from launch.use_cases import resolve


class Still:
    """Another use case, which begins with the weights of a file and learns nothing.

    Args:
        case: Its name; it has no schedule of its learning rate.
        weights: The file.
    """

    def __init__(self, case: str, weights: str) -> None:
        self._case = resolve(case).load()
        self._weights = weights

    def __getattr__(self, name: str) -> Any:
        return getattr(self._case, name)

    def model(self) -> nn.Module:
        """Make the model with these weights."""
        model = self._case.model()
        model.load_state_dict(load_file(self._weights))
        return model

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """Make its optimizer, with a learning rate of 0."""
        optimizer = self._case.optimizer(parameters)
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        return optimizer
