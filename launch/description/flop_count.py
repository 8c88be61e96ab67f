"""Operations of a forward and a backward pass, counted while a few samples are computed."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from launch.use_cases._base import UseCase

_SAMPLES = 2
"""Layers that normalise refuse a single one."""


def count_flop(case: UseCase, model: nn.Module, dataset: Any) -> float | None:
    """Count the operations of matrix products and convolutions, by sample.

    Args:
        case: Gives the loss.
        model: It has gradients afterwards, and its running statistics have changed.
        dataset: A few of its samples are read.

    Returns:
        ``None`` where the user's code fails.
    """
    count = min(_SAMPLES, len(dataset))
    try:
        batch = case.collate([dataset[index] for index in range(count)])
        with FlopCounterMode(display=False) as counter:
            # Not on the device ``meta``: a user's code in C++ would read memory that is not there.
            torch.autograd.backward(case.step(model.train(), batch))
    except Exception:  # noqa: BLE001 - what fails here is told where it is needed
        return None
    return counter.get_total_flops() / count or None
