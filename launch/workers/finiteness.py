"""Check that a training still has numbers: its loss and its parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from launch.errors import NotFiniteError

_CHECKED = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def check_finite_loss(loss: float, what: str) -> None:
    """Check a loss.

    Raises:
        NotFiniteError: It is NaN or infinite.
    """
    if not math.isfinite(loss):
        raise NotFiniteError(f"{what} is {loss}")


@torch.no_grad()
def check_finite_parameters(parameters: Mapping[str, Tensor], step: int) -> None:
    """Check the trained parameters among some tensors: a buffer may be infinite on purpose.

    The loss of a step says nothing of the update that follows it.

    Args:
        parameters: By name.
        step: Steps that the training has made.

    Raises:
        NotFiniteError: A parameter has a NaN or an infinite value.
    """
    for name, value in parameters.items():
        if not (isinstance(value, nn.Parameter) and value.requires_grad and value.numel()):
            continue
        if value.layout is not torch.strided:
            continue
        numbers = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
        if numbers.dtype in _CHECKED:
            low, high = numbers.aminmax()  # which keep a NaN, and need no memory of its size
            if not math.isfinite(low.item()) or not math.isfinite(high.item()):
                raise NotFiniteError(f"parameter {name!r} is NaN or infinite after step {step}")
