"""Update of a stage, with the gradients of the equal stages of other replicas."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, distributed, nn
from torch.distributed import ProcessGroup
from torch.optim import Optimizer

from launch.checkpoints.training_state import OptimizerParts
from launch.gradient_sync.node_channel.shared_state import DENSE, NO_GRADIENT
from launch.gradient_sync.worker_sync.reducer import (
    CrossNodeReducer,
    gradient_kind,
    trained_parameters,
)
from launch.local_group.group import LocalGroup
from launch.training.averaging.averaging import GradientAverager
from launch.training.averaging.clipping import GradientClipper, square_sum
from launch.training.averaging.loss_sum import LossSum, mean_of
from launch.training.averaging.staging_buffer import GradientStagingBuffer
from launch.training.averaging.update_scope import UpdateScope

_BUCKET_BYTES = 25 << 20  # as DDP's: large enough for the link, small enough to start early


class StageUpdate(ABC):
    """Turns the gradients of one stage into new parameters.

    Collective: every worker of the node calls `start` and `finish` in each step, with or without
    samples.
    """

    averager: GradientAverager | None = None
    """Sums the gradients in shared memory, of replicas or for other nodes, where one does."""

    @abstractmethod
    def start(self) -> None:
        """Forget the last step's gradients."""

    @abstractmethod
    def describe_optimizer(self, model: nn.Module) -> OptimizerParts:
        """Describe the optimizer's state for a checkpoint, by names of the whole model."""

    @abstractmethod
    def finish(self, part: LossSum, *, is_full: bool) -> float | None:
        """Sum the gradients of all replicas of this stage, and update the parameters.

        Args:
            part: This worker's part of the loss. Its weight is that of the replica, on each stage
                where this is the only node; else on the last stage alone, and 0 on the others.
            is_full: Whether the step was not the rest of an epoch, smaller than the others.

        Returns:
            The mean loss over all nodes, ``None`` where this is the only one.
        """


class _OwnUpdate(StageUpdate):
    """Update of a worker's own copy of a stage, by its own optimizer."""

    def __init__(
        self, stage: nn.Module, optimizer: Optimizer, clipper: GradientClipper | None
    ) -> None:
        self._stage = stage
        self._optimizer = optimizer
        self._clipper = clipper

    def start(self) -> None:
        self._stage.zero_grad()

    def describe_optimizer(self, model: nn.Module) -> OptimizerParts:
        return OptimizerParts.of_parameters(self._optimizer, model)

    def _update(self, total: LossSum, *, counts: bool) -> None:
        """Update the parameters by gradients that are summed.

        Args:
            total: Sum of the losses; the gradients are divided by its weight.
            counts: Whether the norm of the whole gradient counts this copy's, and no other copy's.
        """
        total.divide_gradients(self._stage.parameters())
        if self._clipper is not None:
            gradients = [p.grad for p in self._stage.parameters() if p.grad is not None]
            factor = self._clipper.factor(square_sum(gradients) if counts else 0.0)
            if factor != 1.0:
                for gradient in gradients:
                    gradient.mul_(factor)
        self._optimizer.step()


class SingleUpdate(_OwnUpdate):
    """Update of a stage without replicas."""

    def finish(self, part: LossSum, *, is_full: bool) -> None:
        self._update(part, counts=True)


class SharedUpdate(StageUpdate):
    """Update of replicas on CPUs, which share the parameters of the stage.

    Collective: every worker of ``group`` makes one, over equal modules: equal stages, or the whole
    model where an optimizer must see it.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: Optimizer,
        group: LocalGroup,
        clipper: GradientClipper | None,
        reducer: CrossNodeReducer | None,
        scope: UpdateScope,
    ) -> None:
        self.averager: GradientAverager = GradientAverager(
            module, optimizer, group, clipper=clipper, reducer=reducer, scope=scope
        )

    def start(self) -> None:
        self.averager.start_step()

    def finish(self, part: LossSum, *, is_full: bool) -> float | None:
        mean_loss = self.averager.step(float(part.loss), part.weight, is_full=is_full)
        return mean_loss if self.averager.has_other_nodes else None

    def describe_optimizer(self, model: nn.Module) -> OptimizerParts:
        return self.averager.describe_optimizer(model)


class ReducedUpdate(_OwnUpdate):
    """Update of replicas that each have a copy of the parameters, as on GPUs.

    Collective: every worker of ``group`` makes one, over equal stages.

    Args:
        stage: This worker's copy.
        optimizer: Of that.
        group: The equal stages.
        clipper: Of all workers; each stage is counted once, on the first replica.
        staging: Of the group, where there are other nodes.
        gives_sparse: Whether a gradient that is sparse on all replicas stays so, for optimizers
            that need it so. It is summed with all its zeros.
    """

    def __init__(
        self,
        stage: nn.Module,
        optimizer: Optimizer,
        group: ProcessGroup,
        clipper: GradientClipper | None,
        staging: GradientStagingBuffer | None,
        *,
        gives_sparse: bool,
    ) -> None:
        super().__init__(stage, optimizer, clipper)
        self._group = group
        self._staging = staging
        self._gives_sparse = gives_sparse
        self._parameters = trained_parameters(stage)

    @torch.no_grad()
    def finish(self, part: LossSum, *, is_full: bool) -> float | None:
        kinds, part = self._gather(part)
        gradients = []
        for parameter, kind in zip(self._parameters, kinds, strict=True):
            # A parameter without a gradient on any replica has none, as in one process.
            if kind == NO_GRADIENT:
                continue
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            elif parameter.grad.is_sparse:  # each replica has other rows
                parameter.grad = parameter.grad.to_dense()
            gradients.append(parameter.grad)
        for bucket in _buckets(gradients):
            flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
            distributed.all_reduce(flat, group=self._group)
            parts = torch.split(flat, [gradient.numel() for gradient in bucket])
            for gradient, summed in zip(bucket, parts, strict=True):
                gradient.copy_(summed.view(gradient.shape))
        if self._gives_sparse:
            for parameter, kind in zip(self._parameters, kinds, strict=True):
                if parameter.grad is not None and kind != DENSE:
                    parameter.grad = parameter.grad.to_sparse(kind)
        if self._staging is not None:
            # The sum of all replicas, since the staging buffer counts the first one's loss alone.
            part = self._staging.all_reduce(part, is_full=is_full)
        self._update(part, counts=distributed.get_rank(self._group) == 0)
        return None if self._staging is None else mean_of(float(part.loss), part.weight)[0]

    def _gather(self, part: LossSum) -> tuple[list[int], LossSum]:
        """Give the highest kind of each gradient over all replicas, and the sum of the losses."""
        kinds = [gradient_kind(parameter.grad) for parameter in self._parameters]
        values = [float(part.loss), part.weight or 0.0, *map(float, kinds)]
        mine = torch.tensor(values, dtype=torch.float64).to(self._parameters[0].device)
        of_each = [torch.empty_like(mine) for _ in range(self._group.size())]
        distributed.all_gather(of_each, mine, group=self._group)
        rows = torch.stack(of_each).cpu()
        loss, weight = rows[:, :2].sum(0).tolist()
        highest = [int(kind) for kind in rows[:, 2:].amax(0).tolist()]
        return highest, LossSum(loss, None if part.weight is None else weight)


def _buckets(gradients: Sequence[Tensor]) -> list[list[Tensor]]:
    """Merge neighbours of one type into buckets that are large enough for one message."""
    buckets: list[list[Tensor]] = []
    filled_bytes = _BUCKET_BYTES
    for gradient in gradients:
        if filled_bytes >= _BUCKET_BYTES or gradient.dtype != buckets[-1][-1].dtype:
            buckets.append([])
            filled_bytes = 0
        buckets[-1].append(gradient)
        filled_bytes += gradient.nbytes
    return buckets
