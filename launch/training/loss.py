"""Loss of a step: known at once on a CPU, on a GPU while the next step is prepared."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, SupportsFloat

import torch
from torch import Tensor

from launch.data.batch import Batch
from launch.errors import UseCaseError
from launch.training.averaging.loss_sum import LossSum
from launch.use_cases._base import UseCase


class PendingLoss(ABC):
    """A loss that may still be computed."""

    @abstractmethod
    def is_known(self) -> bool:
        """Whether it is computed; never waits."""

    @abstractmethod
    def __float__(self) -> float:
        """Wait for the value, and return it."""


class DeviceLoss(PendingLoss):
    """A loss, or a weight, on a GPU that is being copied to the CPU.

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
        return float(self._value.item())  # a weight may be a whole number


def read_async(loss: Tensor) -> SupportsFloat:
    """Return the value of a loss, or a `PendingLoss` where a GPU computes it."""
    return DeviceLoss(loss) if loss.is_cuda else loss.item()


def weigh(case: UseCase, batch: Batch) -> float:
    """Return what the mean of a batch's loss is over.

    Raises:
        UseCaseError: It is no number that losses can be scaled by.
    """
    return read_weight(case.weight(batch))


def weigh_async(case: UseCase, batch: Batch) -> SupportsFloat:
    """Compute what the mean of a batch's loss is over, for `read_weight`.

    Where a GPU computes it, to read it waits for nothing that the GPU is given after this call.
    """
    weight = case.weight(batch)
    if isinstance(weight, Tensor) and weight.is_cuda and weight.numel() == 1:
        return DeviceLoss(weight.detach().reshape(()))
    return weight


def read_weight(weight: SupportsFloat) -> float:
    """Wait for what the mean of a batch's loss is over, and check it.

    Raises:
        UseCaseError: It is no number that losses can be scaled by.
    """
    number = float(weight)
    if not 0 <= number < math.inf:
        raise UseCaseError(
            f"weight(batch) is {number}: return what the mean of the loss is over, a number of at "
            "least 0"
        )
    return number


def find_mean(total: LossSum) -> SupportsFloat:
    """Return the mean loss from the sum over all nodes; a `PendingLoss` where that is one."""
    if not total.weight:
        return total.loss if total.weight is None else 0.0
    if isinstance(total.loss, PendingLoss):
        return _Quotient(total.loss, total.weight)
    return float(total.loss) / total.weight  # known: its step ends now, and not with the next one


class _Quotient(PendingLoss):
    """A loss that may still be computed, divided by a weight."""

    def __init__(self, loss: PendingLoss, weight: float) -> None:
        self._loss = loss
        self._weight = weight

    def is_known(self) -> bool:
        return self._loss.is_known()

    def __float__(self) -> float:
        return float(self._loss) / self._weight
