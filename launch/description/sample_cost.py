"""Cost of a sample: its operations, its memory, and what is kept of it for the backward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from launch.data.batch import leaves
from launch.use_cases._base import UseCase

_SAMPLES = 2
"""Layers that normalise refuse a single one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCost:
    """What one sample takes; all are ``None`` where the user's code fails."""

    flop: float | None = None
    """Operations of matrix products and convolutions, forward and backward."""

    kept_bytes: int | None = None
    """What a forward pass keeps for the backward pass, its input included and weights not."""

    batch_bytes: int | None = None
    """What it takes of a batch, sparse tensors apart."""


def measure_sample(case: UseCase, model: nn.Module, dataset: Any) -> SampleCost:
    """Compute a few samples, and count what they take.

    Args:
        case: Gives the loss.
        model: It has gradients afterwards, and its running statistics have changed.
        dataset: A few of its samples are read.
    """
    count = min(_SAMPLES, len(dataset))
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        # What is sparse has no storage of its own.
        if tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    try:
        batch = case.collate([dataset[index] for index in range(count)])
        # Of a sparse tensor torch gives no size.
        tensors = (leaf for leaf in leaves(batch) if isinstance(leaf, Tensor))
        batch_bytes = sum(one.nbytes for one in tensors if one.layout is torch.strided)
        with FlopCounterMode(display=False) as counter:
            # Not on the device ``meta``: a user's code in C++ would read memory that is not there.
            with saved_tensors_hooks(note, lambda tensor: tensor):
                loss = case.step(model.train(), batch)
            torch.autograd.backward(loss)
    except Exception:  # noqa: BLE001 - what fails here is told where it is needed
        return SampleCost()
    return SampleCost(
        flop=counter.get_total_flops() / count or None,
        kept_bytes=sum(kept.values()) // count,
        batch_bytes=batch_bytes // count,
    )
