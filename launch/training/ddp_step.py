"""Step of workers with a model and a device each, which have equal gradients."""

from __future__ import annotations

from dataclasses import replace
from typing import SupportsFloat

import torch

from launch.checkpoints.training_state import TrainingState
from launch.data.batch import Batch
from launch.data.samples import Part
from launch.data.split import BatchSize
from launch.local_group.group import LocalGroup
from launch.local_group.shared_parameters import SharedBuffers
from launch.plan import Plan
from launch.training.connections import Connections, translate_lost_workers
from launch.training.ddp_replica import DdpReplica
from launch.training.plain_step import PlainStep
from launch.use_cases._base import UseCase


class DdpStep(PlainStep):
    """One of several workers with a model and a device each.

    Collective: every worker of ``group`` builds one over an equal model.
    """

    def __init__(self, plan: Plan, case: UseCase, group: LocalGroup) -> None:
        device = plan.device_of(group.local_rank)
        self._is_first = group.local_rank == 0
        self._connections = Connections(group, torch.device(device))
        super().__init__(plan, case, device, group, DdpReplica)
        self.part = Part(group.local_rank, group.size)
        self._buffers = SharedBuffers(self.model, group)

    def noise_obstacle(self) -> str:
        return "DistributedDataParallel averages the gradients of workers unseen"

    @translate_lost_workers()
    def run(self, share: Batch | None, size: BatchSize) -> SupportsFloat:
        return super().run(share, size)

    def sync_model(self) -> None:
        self._buffers.broadcast_from_first()

    def describe_state(self) -> TrainingState:
        state = super().describe_state()
        # All workers hold the same.
        return state if self._is_first else replace(state, weights=[], writes_optimizers=False)

    def close(self) -> None:
        self._connections.close()
