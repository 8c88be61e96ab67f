"""How do replicas that share their parameters on a CPU make one step together?"""

from __future__ import annotations

from torch import nn

from launch.checkpoints.held import HeldState
from launch.data.batch import Batch
from launch.data.samples import Part
from launch.data.split import BatchSize
from launch.plan import Plan
from launch.training.averaging import GradientAverager
from launch.training.buffers import SharedBuffers
from launch.training.clipping import GradientClipper
from launch.training.group import LocalGroup
from launch.training.lateness import updates_late
from launch.training.optimizer import make_optimizer
from launch.training.replica import Replica
from launch.training.step import TrainStep
from launch.use_cases._base import UseCase


class SharedStep(TrainStep):
    """One of several replicas.

    Collective: every worker of ``group`` builds one over an equal model.
    """

    def __init__(self, plan: Plan, case: UseCase, model: nn.Module, group: LocalGroup) -> None:
        self.model = model
        self.part = Part(group.local_rank, group.size)
        self._is_first = group.local_rank == 0
        self._replica = Replica(plan, case, model, "cpu")
        optimizer = make_optimizer(plan, case, model.parameters())
        self.optimizers = [optimizer]
        max_norm = case.max_gradient_norm
        clipper = None if max_norm is None else GradientClipper(max_norm, group)
        peers = group.meet_peers(model)
        self._averager = GradientAverager(
            model,
            optimizer,
            group,
            clipper=clipper,
            peers=peers,
            may_be_late=updates_late(plan),
        )
        self._buffers = SharedBuffers(model, group)

    def run(self, share: Batch | None, size: BatchSize) -> float:
        self._averager.start_step(self._replica.passes_to_final(share))
        with self._averager.watch():
            loss = float(self._replica.gradients(share, size))
        return self._averager.step(loss, is_full=size.is_full)

    def finish(self) -> None:
        self._averager.finish()

    def agree(self) -> None:
        self._buffers.copy_from_first()

    def place(self, batch: Batch) -> Batch:
        return self._replica.place(batch)

    def held(self) -> HeldState:
        return HeldState(
            models=[self.model],
            weights=list(self.model.state_dict()) if self._is_first else [],
            optimizers=[self._averager.held(self.model)],
        )
