"""Replica in torch's DistributedDataParallel, which averages with equal workers.

DDP averages gradients over the workers, bucket by bucket, while the backward pass still computes
the others. It divides by the number of workers: each worker's loss counts for its share of the node
batch times that number, so that the average is the gradient of the mean, however unequal the
shares.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from launch.data.batch import Batch
from launch.data.split import BatchSize
from launch.plan import Plan
from launch.training.averaging.loss_sum import LossSum
from launch.training.connections import translate_lost_workers
from launch.training.loss import read_async
from launch.training.replica import Replica, WeightedLoss
from launch.use_cases._base import UseCase


class DdpReplica(Replica):
    """A worker's model with its loss.

    Collective: every worker of torch's default process group builds one over an equal model, and
    calls `gradients` for each step.
    """

    def __init__(self, plan: Plan, case: UseCase, model: nn.Module, device: str) -> None:
        super().__init__(plan, case, model, device)
        self._local_loss = _ShareLoss(plan, case, model, device)
        with translate_lost_workers():  # it compares the module with those of the other workers
            self._loss = self._ddp = DistributedDataParallel(
                self._local_loss,
                broadcast_buffers=False,
                gradient_as_bucket_view=True,
                # Without it DDP would wait for ever for a parameter that a step does not use. With
                # it such a parameter has no gradient, as in one process.
                find_unused_parameters=True,
            )
        self._workers = distributed.get_world_size()

    def gradients(self, share: Batch | None, size: BatchSize) -> LossSum:
        total = torch.zeros(2, dtype=torch.float64, device=self._device)
        weight = 0.0
        pieces = self._pieces(share, size) if share is not None else iter(())
        counted = (pair for pair in pieces if pair[1])  # each is placed when it is asked for
        coming: tuple[Batch | None, float] | None = next(counted, (None, 0.0))
        while coming is not None:
            piece, scale = coming
            coming = next(counted, None)
            # DDP averages in the last pass, which must use what the others have used.
            with nullcontext() if coming is None else self._ddp.no_sync():
                total[0] += self._backward(piece, scale * self._workers, size)
            weight += scale
        self._local_loss.note_gradients()
        total[0] /= self._workers
        total[1] = weight
        distributed.all_reduce(total)
        return LossSum(read_async(total[0]), total[1].item() if self._has_weights else None)

    def passes_to_final(self, share: Batch | None) -> None:
        return None  # DDP sums it over the workers later


class _ShareLoss(WeightedLoss):
    """A loss for workers with and without samples."""

    def __init__(self, plan: Plan, case: UseCase, model: nn.Module, device: str) -> None:
        super().__init__(plan, case, model, device)
        self._trained = [p for p in model.parameters() if p.requires_grad]
        self._used = self._trained[:1]

    def note_gradients(self) -> None:
        """Remember a parameter that has a gradient in this step."""
        with_gradient = (p for p in self._trained if p.grad is not None)
        self._used = [next(with_gradient, *self._used)]

    def forward(self, batch: Batch | None, scale: float, *, is_full: bool) -> Tensor:
        if batch is None:
            # Zero, with a gradient of zeros: DDP begins to average at the first gradient. That of
            # one parameter suffices, the others count as unused by this worker. It is one in use,
            # since a parameter that no worker uses must have no gradient. A loss is real, also of
            # a complex parameter.
            return self._used[0].flatten()[:0].sum().real
        return super().forward(batch, scale, is_full=is_full)
