"""What happens in one step of one worker? Forward, backward, average, update."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import nn

from launch.plan import Plan
from launch.training.averaging import GradientAverager
from launch.training.batches import move_batch, num_samples, split_batch, usable_parts
from launch.training.buffers import SharedBuffers
from launch.training.group import LocalGroup
from launch.use_cases._base import UseCase

Batch = tuple[Any, Any]
"""Inputs and targets; the first dimension of each tensor counts samples."""


class TrainStep(ABC):
    """One worker's part of an optimizer step, built by a strategy.

    Attributes:
        model: Holds the current parameters after each step, for validation and for saving.
    """

    model: nn.Module

    @abstractmethod
    def run(self, share: Batch | None, batch_size: int) -> float:
        """Make one step. Collective: every worker of the node calls it with its share.

        Args:
            share: This worker's samples; ``None`` where the last batch of an epoch leaves none.
            batch_size: Samples of all workers together.

        Returns:
            Mean loss over the node batch.
        """

    @abstractmethod
    def place(self, batch: Batch) -> Batch:
        """Bring a batch to where and how ``model`` wants it."""

    def agree(self) -> None:
        """Bring ``model`` to one state on every worker, before validation. Collective.

        Parameters are always the same; what else a model keeps, such as the running statistics
        of BatchNorm, each worker has from its own share.
        """
        return

    def close(self) -> None:
        """End what the step started. Nothing by default."""
        return


class _Replica:
    """A model with its loss on one device: what computes gradients."""

    def __init__(self, plan: Plan, case: UseCase, model: nn.Module, device: str) -> None:
        self.model = model
        self._loss = case.loss
        self._micro_batches = plan.micro_batches
        self._device = torch.device(device)
        self._memory_format = memory_format(plan)
        self._is_bf16 = plan.precision == "bf16"

    def place(self, batch: Batch) -> Batch:
        placed: Batch = move_batch(batch, self._device, self._memory_format)
        return placed

    def gradients(self, share: Batch | None, batch_size: int) -> float:
        """Compute the gradients of this share's part of the node batch's mean loss."""
        total = 0.0
        if share is None:
            return total
        pieces = usable_parts(num_samples(share), self._micro_batches)
        for piece in split_batch(share, pieces):
            inputs, targets = self.place(piece)
            with torch.autocast(self._device.type, torch.bfloat16, enabled=self._is_bf16):
                loss = self._loss(self.model(inputs), targets)
            loss = loss * (num_samples(piece) / batch_size)
            torch.autograd.backward(loss)
            total += loss.item()
        return total


class PlainStep(TrainStep):
    """One model that nobody shares: PyTorch's usual loop."""

    def __init__(self, plan: Plan, case: UseCase) -> None:
        self.model = prepare_model(plan, case.model())
        self._replica = _Replica(plan, case, self.model, plan.devices[0])
        self._optimizer = case.optimizer(self.model.parameters())

    def run(self, share: Batch | None, batch_size: int) -> float:
        self._optimizer.zero_grad()
        loss = self._replica.gradients(share, batch_size)
        self._optimizer.step()
        return loss

    def place(self, batch: Batch) -> Batch:
        return self._replica.place(batch)


class SharedStep(TrainStep):
    """One of several replicas that share their parameters on a CPU.

    Collective: every worker of ``group`` builds one over an equal model.
    """

    def __init__(self, plan: Plan, case: UseCase, model: nn.Module, group: LocalGroup) -> None:
        self.model = model
        self._replica = _Replica(plan, case, model, "cpu")
        self._averager = GradientAverager(model, case.optimizer(model.parameters()), group)
        self._buffers = SharedBuffers(model, group)

    def run(self, share: Batch | None, batch_size: int) -> float:
        self._averager.start_step()
        return self._averager.step(self._replica.gradients(share, batch_size))

    def agree(self) -> None:
        self._buffers.copy_from_first()

    def place(self, batch: Batch) -> Batch:
        return self._replica.place(batch)


def prepare_model(plan: Plan, model: nn.Module) -> nn.Module:
    """Bring a fresh model to the plan's device and memory format."""
    model.train()
    return model.to(device=plan.devices[0], memory_format=memory_format(plan))  # type: ignore[call-overload,no-any-return]


def memory_format(plan: Plan) -> torch.memory_format:
    """Give torch's name of the plan's memory format.

    ``contiguous`` is torch's ``preserve_format``: tensors stay as the use case made them.
    """
    return torch.channels_last if plan.memory_format == "channels_last" else torch.preserve_format
