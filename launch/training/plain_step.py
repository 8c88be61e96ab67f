"""How does one model that nobody shares make a step? By PyTorch's usual loop."""

from __future__ import annotations

from typing import SupportsFloat

from torch import nn

from launch.checkpoints.held import HeldOptimizer, HeldState
from launch.data.batch import Batch
from launch.data.samples import Part
from launch.plan import Plan
from launch.training.cuda_graph import GraphedReplica
from launch.training.optimizer import make_optimizer
from launch.training.replica import Replica, prepare_model
from launch.training.step import TrainStep
from launch.use_cases._base import UseCase


class PlainStep(TrainStep):
    """One model on one device."""

    part = Part(0, 1)

    def __init__(
        self, plan: Plan, case: UseCase, device: str, replica: type[Replica] | None = None
    ) -> None:
        replica = replica or (GraphedReplica if plan.cuda_graph else Replica)
        self.model = prepare_model(plan, case.model(), device)
        self._replica = replica(plan, case, self.model, device)
        self._optimizer = make_optimizer(plan, case, self.model.parameters())
        self.optimizers = [self._optimizer]
        self._max_norm = case.max_gradient_norm

    def run(self, share: Batch | None, batch_size: int) -> SupportsFloat:
        self._optimizer.zero_grad()
        loss = self._replica.gradients(share, batch_size)
        if self._max_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self._max_norm)
        self._optimizer.step()
        return loss

    def place(self, batch: Batch) -> Batch:
        return self._replica.place(batch)

    def held(self) -> HeldState:
        return HeldState(
            models=[self.model],
            weights=list(self.model.state_dict()),
            optimizers=[HeldOptimizer.of_parameters(self._optimizer, self.model)],
        )
