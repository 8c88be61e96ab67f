"""Replica: one copy of the model with its loss, on one device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, SupportsFloat

import torch
from torch import Tensor, nn

from launch.data.batch import Batch, move_batch, split_batch
from launch.data.prefetch import send_ahead
from launch.data.samples import count_usable_parts
from launch.data.split import BatchSize
from launch.errors import InvalidPlanError, UseCaseError
from launch.plan import Plan
from launch.training.autocast import autocast
from launch.training.averaging.aliases import aliases_follow, order_pictures
from launch.training.averaging.loss_sum import LossSum
from launch.training.averaging.noise_meter import NoiseMeter
from launch.training.compiled import compile_model, translate_compiler_errors
from launch.training.loss import read_async, read_weight, weigh_async
from launch.use_cases._base import UseCase, is_own


class Replica:
    """A model with its loss on one device."""

    def __init__(self, plan: Plan, case: UseCase, model: nn.Module, device: str) -> None:
        self.model = model
        self._case = case
        self._has_weights = is_own(case, "weight")
        self._plan = plan
        self._loss: nn.Module = WeightedLoss(plan, case, model, device)
        self._device = torch.device(device)
        self.noise_meter: NoiseMeter | None = None
        """Told of each part of a step."""

    def place(self, batch: Batch) -> Batch:
        """Move a batch to this replica's device and memory format."""
        return move_batch(batch, self._device, memory_format(self._plan))

    def gradients(self, share: Batch | None, size: BatchSize) -> LossSum:
        """Compute the gradients of this share's part of the loss over all nodes.

        Returns:
            That part; its loss is a `PendingLoss` where a GPU computes it.
        """
        if share is None:
            return LossSum(0.0, 0.0 if self._has_weights else None)
        loss, weight = self._sum_gradients(share, size)
        return LossSum(read_async(loss), weight)

    def count_passes(self, share: Batch | None) -> int:
        """Return the number of backward passes of a share."""
        if share is None:
            return 0
        return count_usable_parts(self._case.size(share), self._plan.micro_batches)

    def passes_to_final(self, share: Batch | None) -> int | None:
        """Return the number of backward passes after which a gradient is final.

        ``None`` where it is not by then, or where no hook runs when it is computed.
        """
        return self.count_passes(share)

    def _sum_gradients(self, share: Batch, size: BatchSize) -> tuple[Tensor, float | None]:
        """Add the gradients of a share; return its loss and its weight, see `LossSum`."""
        total, weights = torch.zeros((), dtype=torch.float64, device=self._device), 0.0
        for piece, scale in self._pieces(share, size):
            weights += scale
            if scale:
                if self.noise_meter is not None:
                    self.noise_meter.begin_part(scale)
                total += self._backward(piece, scale, size)
        return total, weights if self._has_weights else None

    def _pieces(self, share: Batch, size: BatchSize) -> Iterator[tuple[Batch, float]]:
        """Cut a share into the plan's micro-batches, fewer where it is small.

        Where the use case weighs them, each is placed and weighed before the one in front of it is
        computed: a GPU that is asked for its weight afterwards would first have to do that.

        Yields:
            Each on its device, and the scale of its loss.
        """
        samples = self._case.size(share)
        pieces = iter(split_batch(share, self.count_passes(share), samples))
        if not self._has_weights:
            for piece in pieces:
                yield self.place(piece), self._case.size(piece) / size.total
            return
        for placed, weight in send_ahead(pieces, self._place_and_weigh, _read_weight_beside):
            yield placed, weight / size.total

    def _place_and_weigh(self, piece: Batch) -> tuple[Batch, SupportsFloat]:
        placed = self.place(piece)
        return placed, weigh_async(self._case, placed)

    def _backward(self, piece: Batch | None, scale: float, size: BatchSize) -> Tensor:
        """Add the gradients of a piece's mean loss times ``scale``; return that loss."""
        with translate_compiler_errors() if self._plan.compile else nullcontext():
            loss: Tensor = self._loss(piece, scale, is_full=size.is_full)
            torch.autograd.backward(loss)
        return loss.detach()


def _read_weight_beside(weighed: tuple[Batch, SupportsFloat]) -> tuple[Batch, float]:
    """Read the weight of a micro-batch that was placed and weighed."""
    placed, weight = weighed
    return placed, read_weight(weight)


class WeightedLoss(nn.Module):
    """Model and loss as one module, so that both run in the plan's precision."""

    def __init__(self, plan: Plan, case: UseCase, model: nn.Module, device: str) -> None:
        super().__init__()
        self.model = model
        # In a table, where torch does not take it for one more module.
        self._model_of: dict[bool, Callable[..., Any]] = {True: model, False: model}
        if plan.compile:
            self._model_of[True] = compile_model(model, as_module=is_own(case, "step"))
        self._case = case
        self._plan = plan
        self._device_type = torch.device(device).type

    def forward(self, batch: Batch, scale: float, *, is_full: bool) -> Tensor:
        """Return the mean loss over a batch, times ``scale``.

        Args:
            batch: On the model's device.
            scale: Of its loss in that of all nodes.
            is_full: Whether it is part of a full node batch, whose shapes repeat.
        """
        with autocast(self._plan, self._device_type):
            loss = self._case.step(self._model_of[is_full], batch)
        return loss * scale


def prepare_model(plan: Plan, model: nn.Module, device: str) -> nn.Module:
    """Move a fresh model to a device and to the plan's memory format.

    Raises:
        InvalidPlanError: Something that cannot be moved shares the memory of a parameter.
    """
    model.train()
    is_cuda = torch.device(device).type == "cuda"
    if is_cuda:
        torch.cuda.set_device(device)  # for its streams
    is_changed = memory_format(plan) == torch.channels_last
    moved = [p for p in model.parameters() if is_cuda or (is_changed and p.dim() == 4)]
    try:
        with aliases_follow(model, moved):
            model.to(device)
            if is_changed:
                order_pictures(model)
            return model
    except UseCaseError as error:  # of this plan alone: in other plans nothing moves
        where = f"device={device} and memory_format={plan.memory_format}"
        raise InvalidPlanError(f"{where}: {error}") from error


def memory_format(plan: Plan) -> torch.memory_format:
    """Return torch's name of the plan's memory format.

    ``contiguous`` is torch's ``preserve_format``: tensors stay as the use case made them.
    """
    return torch.channels_last if plan.memory_format == "channels_last" else torch.preserve_format
