"""Step of one model on one device, by PyTorch's usual loop."""

from __future__ import annotations

from typing import SupportsFloat

import torch
from torch import nn

from launch.checkpoints.training_state import OptimizerParts, TrainingState
from launch.data.batch import Batch
from launch.data.samples import Part
from launch.data.split import BatchSize
from launch.local_group.group import LocalGroup
from launch.plan import Plan
from launch.training.averaging.noise_meter import NoiseMeter
from launch.training.averaging.optimizer import make_optimizer
from launch.training.averaging.staging_buffer import GradientStagingBuffer
from launch.training.averaging.update_scope import UpdateScope, scope_of_class
from launch.training.cuda_graph import CudaGraphReplica
from launch.training.loss import find_mean
from launch.training.replica import Replica, prepare_model
from launch.training.shared_step import SharedStep
from launch.training.step import TrainStep
from launch.use_cases._base import UseCase


class PlainStep(TrainStep):
    """One model on one device."""

    part = Part(0, 1)

    def __init__(
        self,
        plan: Plan,
        case: UseCase,
        device: str,
        group: LocalGroup,
        replica: type[Replica] | None = None,
    ) -> None:
        replica = replica or (CudaGraphReplica if plan.cuda_graph else Replica)
        self.model = prepare_model(plan, case.model(), device)
        self._replica = replica(plan, case, self.model, device)
        self._micro_batches = plan.micro_batches
        self._is_on_cpu = torch.device(device).type == "cpu"
        self._optimizer = make_optimizer(plan, case, self.model.parameters(), self.model)
        self.optimizers = [self._optimizer]
        self._max_norm = case.max_gradient_norm
        reducer = group.make_reducer(self.model)
        self._staging = None
        if reducer is not None:
            self._staging = GradientStagingBuffer(
                self.model,
                group,
                reducer,
                gives_sparse=scope_of_class(self._optimizer) is not UpdateScope.ELEMENT,
            )

    def noise_obstacle(self) -> str | None:
        if not self._is_on_cpu:
            return "norms of gradients on a GPU are not taken"
        if self._micro_batches < 2:
            return "a step has one part: use micro_batches, or several workers"
        return None

    def measure_noise(self, cost_limit: float) -> None:
        self.noise_meter = self._replica.noise_meter = NoiseMeter(
            self.model, is_first=True, cost_limit=cost_limit
        )

    def run(self, share: Batch | None, size: BatchSize) -> SupportsFloat:
        meter = self.noise_meter
        if meter is not None:
            meter.start_step(size.total, self.model.parameters())
        self.model.zero_grad()  # of what no optimizer trains too: it counts in the norm
        if self._staging is not None:
            self._staging.start_step(self._replica.passes_to_final(share))
        part = self._replica.gradients(share, size)
        if self._staging is not None:
            part = self._staging.all_reduce(part, is_full=size.is_full)
        if meter is not None and meter.needs_exchange:
            meter.take(meter.offer())
        part.divide_gradients(self.model.parameters())
        if meter is not None and meter.awaits_average:
            meter.add_average(p.grad for p in meter.watched if p.grad is not None)
        if self._max_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self._max_norm)
        self._optimizer.step()
        return find_mean(part)

    def place(self, batch: Batch) -> Batch:
        return self._replica.place(batch)

    def describe_state(self) -> TrainingState:
        return TrainingState(
            models=[self.model],
            weights=list(self.model.state_dict()),
            optimizers=[OptimizerParts.of_parameters(self._optimizer, self.model)],
        )


def make_single_step(plan: Plan, case: UseCase, group: LocalGroup) -> TrainStep:
    """Make the step of one model on a node.

    With other nodes, gradients on a CPU are computed in memory that the rank sees.
    """
    device = plan.devices[0]
    if group.has_other_nodes and torch.device(device).type == "cpu":
        return SharedStep(plan, case, prepare_model(plan, case.model(), device), group)
    return PlainStep(plan, case, device, group)
