"""Step of replicas that share their parameters on a CPU."""

from __future__ import annotations

from torch import nn
from torch.optim import Optimizer

from launch.checkpoints.training_state import TrainingState
from launch.data.batch import Batch
from launch.data.samples import Part
from launch.data.split import BatchSize
from launch.gradient_sync.worker_sync.reducer import trained_parameters
from launch.local_group.group import LocalGroup
from launch.local_group.shared_parameters import SharedBuffers
from launch.plan import Plan
from launch.training.averaging.aliases import aliases_follow
from launch.training.averaging.averaging import GradientAverager
from launch.training.averaging.clipping import GradientClipper
from launch.training.averaging.noise_meter import NoiseExchange, NoiseMeter
from launch.training.averaging.optimizer import make_optimizer
from launch.training.averaging.update_scope import UpdateScope, find_update_scope
from launch.training.replica import Replica
from launch.training.step import TrainStep
from launch.use_cases._base import UseCase


class SharedStep(TrainStep):
    """One of several replicas.

    Collective: every worker of ``group`` builds one over an equal model.

    Args:
        plan: To train with.
        case: Gives the loss.
        model: This replica's.
        group: The replicas.
        optimizer: Of the model's parameters; by default the use case's, made here.
        scope: Of the optimizer's update, the same for every replica; found here by default.
    """

    def __init__(
        self,
        plan: Plan,
        case: UseCase,
        model: nn.Module,
        group: LocalGroup,
        *,
        optimizer: Optimizer | None = None,
        scope: UpdateScope | None = None,
    ) -> None:
        self.model = model
        self._trained = trained_parameters(model)
        self.part = Part(group.local_rank, group.size)
        self._group = group
        self._is_first = group.local_rank == 0
        self._exchange: NoiseExchange | None = None
        self._replica = Replica(plan, case, model, "cpu")
        scope = scope or find_update_scope(case.optimizer, model)
        optimizer = optimizer or make_optimizer(plan, case, model.parameters(), model)
        self.optimizers = [optimizer]
        max_norm = case.max_gradient_norm
        clipper = None if max_norm is None else GradientClipper(max_norm, group)
        reducer = group.make_reducer(model)
        with aliases_follow(model):
            self._averager = GradientAverager(
                model,
                optimizer,
                group,
                clipper=clipper,
                reducer=reducer,
                may_defer_update=plan.is_eager_on_cpu,
                scope=scope,
            )
        self._buffers = SharedBuffers(model, group)

    def noise_obstacle(self) -> None:
        return

    def measure_noise(self, cost_limit: float) -> None:
        self.noise_meter = meter = NoiseMeter(
            self.model, is_first=self._is_first, cost_limit=cost_limit
        )
        self._replica.noise_meter = meter
        self._averager.measure_noise(meter)
        if not self._averager.has_other_nodes:
            self._exchange = NoiseExchange(self._group)

    def run(self, share: Batch | None, size: BatchSize) -> float:
        if self.noise_meter is not None:
            self.noise_meter.start_step(size.total, self._trained)
        self._averager.start_step(self._replica.passes_to_final(share))
        with self._averager.track_uses():
            part = self._replica.gradients(share, size)
            loss = float(part.loss)
        if self.noise_meter is not None and self._exchange is not None:
            self._exchange.run(self.noise_meter)
        return self._averager.step(loss, part.weight, is_full=size.is_full)

    def take_warning(self) -> str | None:
        return self._averager.take_warning()

    def finish(self) -> None:
        self._averager.finish()

    def sync_model(self) -> None:
        self._buffers.broadcast_from_first()

    def place(self, batch: Batch) -> Batch:
        return self._replica.place(batch)

    def describe_state(self) -> TrainingState:
        return TrainingState(
            models=[self.model],
            weights=list(self.model.state_dict()) if self._is_first else [],
            optimizers=[self._averager.describe_optimizer(self.model)],
        )
