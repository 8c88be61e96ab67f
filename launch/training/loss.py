"""Loss of a step: known at once on a CPU, on a GPU while the next step is prepared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, SupportsFloat

import torch
from torch import Tensor


class PendingLoss(ABC):
    """A loss that may still be computed."""

    @abstractmethod
    def is_known(self) -> bool:
        """Whether it is computed; never waits."""

    @abstractmethod
    def __float__(self) -> float:
        """Wait for the value, and return it."""


class DeviceLoss(PendingLoss):
    """A loss on a GPU that is being copied to the CPU.

    To read a tensor's value would wait for everything that the GPU was given by then, the next step
    too.
    """

    def __init__(self, loss: Tensor) -> None:
        self._value = torch.empty((), dtype=loss.dtype, pin_memory=True)
        self._value.copy_(loss, non_blocking=True)
        # Waited for without burning a core.
        self._arrived: Any = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        self._arrived.record()

    def is_known(self) -> bool:
        return bool(self._arrived.query())

    def __float__(self) -> float:
        self._arrived.synchronize()
        return self._value.item()


def read_async(loss: Tensor) -> SupportsFloat:
    """Return the value of a loss, or a `PendingLoss` where a GPU computes it."""
    return DeviceLoss(loss) if loss.is_cuda else loss.item()
