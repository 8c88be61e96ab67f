"""How is a stage updated when its gradients are there? With those of the equal stages beside it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, distributed, nn
from torch.distributed import ProcessGroup
from torch.optim import Optimizer

from launch.checkpoints.held import HeldOptimizer
from launch.exchange.peers import Peers
from launch.training.averaging import GradientAverager
from launch.training.clipping import GradientClipper, square_sum
from launch.training.group import LocalGroup
from launch.training.mirror import GradientMirror

_BUCKET_BYTES = 25 << 20  # as DDP's: large enough for the link, small enough to start early


class StageUpdate(ABC):
    """Turns the gradients of one stage into new parameters.

    Collective: every worker of the node calls `start` and `finish` in each step, with or without
    samples.
    """

    @abstractmethod
    def start(self) -> None:
        """Forget the last step's gradients."""

    @abstractmethod
    def held(self, model: nn.Module) -> HeldOptimizer:
        """Name what the optimizer keeps here, for a checkpoint, as the whole model names it."""

    @abstractmethod
    def finish(self, loss: float, *, is_full: bool) -> float | None:
        """Add up the gradients of all replicas of this stage, and update the parameters.

        Args:
            loss: This worker's part of the mean loss.
            is_full: Whether the step was not the rest of an epoch, smaller than the others.

        Returns:
            The loss of all nodes, ``None`` where there is but this one.
        """


class LoneUpdate(StageUpdate):
    """Of a stage that there is once."""

    def __init__(self, optimizer: Optimizer, clipper: GradientClipper | None) -> None:
        self._optimizer = optimizer
        self._clipper = clipper

    def start(self) -> None:
        self._optimizer.zero_grad()

    def finish(self, loss: float, *, is_full: bool) -> None:
        if self._clipper is not None:
            clip(_gradients(self._optimizer), self._clipper)
        self._optimizer.step()

    def held(self, model: nn.Module) -> HeldOptimizer:
        return HeldOptimizer.of_parameters(self._optimizer, model)


class SharedUpdate(StageUpdate):
    """Of replicas on CPUs, which share the parameters of the stage.

    Collective: every worker of ``group`` makes it, over equal stages.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: Optimizer,
        group: LocalGroup,
        clipper: GradientClipper | None,
        peers: Peers | None,
    ) -> None:
        self._has_peers = peers is not None
        self._averager = GradientAverager(module, optimizer, group, clipper=clipper, peers=peers)

    def start(self) -> None:
        self._averager.start_step()

    def finish(self, loss: float, *, is_full: bool) -> float | None:
        mean_loss = self._averager.step(loss, is_full=is_full)
        return mean_loss if self._has_peers else None

    def held(self, model: nn.Module) -> HeldOptimizer:
        return self._averager.held(model)


class ReducedUpdate(StageUpdate):
    """Of replicas that each have the parameters of the stage, as on GPUs.

    Collective: every worker of ``group`` makes it, over equal stages.

    Args:
        optimizer: Of this worker's copy.
        group: The equal stages.
        clipper: Of all workers; each stage is counted once, on the first replica.
        mirror: Of the group, where there are other nodes.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        group: ProcessGroup,
        clipper: GradientClipper | None,
        mirror: GradientMirror | None,
    ) -> None:
        self._mirror = mirror
        self._optimizer = optimizer
        self._group = group
        self._clipper = clipper
        self._parameters = [p for p in _parameters(optimizer) if p.requires_grad]

    def start(self) -> None:
        self._optimizer.zero_grad()

    @torch.no_grad()
    def finish(self, loss: float, *, is_full: bool) -> float | None:
        device = self._parameters[0].device
        ready = torch.tensor([p.grad is not None for p in self._parameters], dtype=torch.int32)
        ready = ready.to(device)
        distributed.all_reduce(ready, group=self._group)
        gradients = []
        for parameter, replicas in zip(self._parameters, ready.tolist(), strict=True):
            # What no replica has a gradient for is left alone, as it would be in one process.
            if replicas:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                elif parameter.grad.is_sparse:  # each replica has other rows
                    parameter.grad = parameter.grad.to_dense()
                gradients.append(parameter.grad)
        for bucket in _buckets(gradients):
            flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
            distributed.all_reduce(flat, group=self._group)
            parts = torch.split(flat, [gradient.numel() for gradient in bucket])
            for gradient, part in zip(bucket, parts, strict=True):
                gradient.copy_(part.view(gradient.shape))
        mean_loss = None
        if self._mirror is not None:
            # Every worker's loss is counted, where the mirror counts the first replica's alone.
            part = torch.tensor(loss, device=device)
            distributed.all_reduce(part, group=self._group)
            mean_loss = self._mirror.sum_up(float(part), is_full=is_full)
            gradients = [p.grad for p in self._parameters if p.grad is not None]
        if self._clipper is not None:
            counts = distributed.get_rank(self._group) == 0
            clip(gradients, self._clipper, counts=counts)
        self._optimizer.step()
        return mean_loss

    def held(self, model: nn.Module) -> HeldOptimizer:
        return HeldOptimizer.of_parameters(self._optimizer, model)


def clip(gradients: Sequence[Tensor], clipper: GradientClipper, *, counts: bool = True) -> None:
    """Scale this worker's part of the gradient so that the whole is short enough. Collective.

    Args:
        gradients: This worker's part.
        clipper: Of all workers.
        counts: Whether no other worker counts this part.
    """
    factor = clipper.factor(square_sum(gradients) if counts else 0.0)
    if factor != 1.0:
        for gradient in gradients:
            gradient.mul_(factor)


def _parameters(optimizer: Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _gradients(optimizer: Optimizer) -> list[Tensor]:
    return [p.grad for p in _parameters(optimizer) if p.grad is not None]


def _buckets(gradients: Sequence[Tensor]) -> list[list[Tensor]]:
    """Put neighbours of one type together until they are large enough for one message."""
    buckets: list[list[Tensor]] = []
    filled_bytes = _BUCKET_BYTES
    for gradient in gradients:
        if filled_bytes >= _BUCKET_BYTES or gradient.dtype != buckets[-1][-1].dtype:
            buckets.append([])
            filled_bytes = 0
        buckets[-1].append(gradient)
        filled_bytes += gradient.numel() * gradient.element_size()
    return buckets
