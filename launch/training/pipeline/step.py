"""Step of one or several pipelines.

Worker ``replica * stages + stage`` trains one stage of one replica. The first stage of each
replica reads its share and sends the targets on to the last one; micro-batches go forward and
their gradients back; then equal stages sum their gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from launch.checkpoints.training_state import TrainingState
from launch.data.batch import Batch, leaves, move_batch, repeat_samples, split_batch
from launch.data.samples import Part, count_equal_parts
from launch.data.split import BatchSize
from launch.errors import InvalidPlanError, UseCaseError
from launch.local_group.group import LocalGroup, SubGroup
from launch.plan import Plan
from launch.training.autocast import autocast
from launch.training.averaging.aliases import find_shared_parameter
from launch.training.averaging.clipping import GradientClipper
from launch.training.averaging.loss_sum import LossSum, mean_of
from launch.training.averaging.noise_meter import NoiseExchange, NoiseMeter
from launch.training.averaging.optimizer import make_optimizer
from launch.training.averaging.staging_buffer import GradientStagingBuffer
from launch.training.averaging.update_scope import UpdateScope, find_update_scope
from launch.training.connections import Connections, translate_lost_workers
from launch.training.loss import weigh
from launch.training.pipeline.chosen_cut import choose_cut
from launch.training.pipeline.layers import boundary_specs
from launch.training.pipeline.pipelining import MicroBatchPipeline, StageModule
from launch.training.pipeline.pytree import flatten, receive_targets, send_targets
from launch.training.pipeline.stage_update import (
    ReducedUpdate,
    SharedUpdate,
    SingleUpdate,
    StageUpdate,
)
from launch.training.replica import memory_format, prepare_model
from launch.training.step import TrainStep
from launch.training.whole_model import WholeModel, has_extra_state, move_in_place
from launch.use_cases._base import UseCase, is_own

_MOST_PIPELINES = 4
"""Kept with their buffers: those of an epoch's batches and of its last one, before and after the
shares have changed."""


class PipelineStep(TrainStep):
    """One stage of one replica.

    Collective: every worker of ``group`` builds one.
    """

    def __init__(self, plan: Plan, case: UseCase, group: LocalGroup) -> None:
        self._plan, self._case, self._group = plan, case, group
        stages = plan.processes // plan.replicas
        self._replica, self._stage = divmod(group.local_rank, stages)
        self._share = Part(self._replica, plan.replicas)
        self.part = self._share if self._stage == 0 else None
        self._is_last = self._stage == stages - 1
        self._device = torch.device(plan.device_of(group.local_rank))
        self.model = prepare_model(plan, case.model(), "cpu")
        self._layers = _layers_of(case, self.model)
        if (name := find_shared_parameter(self.model)) is not None:
            raise _shared_memory_error(plan, f"parameter {name!r}")
        self._whole = WholeModel(self.model, group)
        self._reducer = group.make_reducer(self.model)
        self._connections = Connections(group, self._device)
        ranks = torch.arange(plan.processes).view(plan.replicas, stages)
        self._pipeline = self._connections.sub_group(ranks.tolist())
        self._same_stage_ranks = ranks.T.tolist()
        self._same_stage_group = self._connections.sub_group(self._same_stage_ranks)
        self._last_rank = int(ranks[self._replica, -1])
        self._first_rank = int(ranks[self._replica, 0])
        # Two in turn: a replica that is ahead by one step writes to the one that is not read.
        sums = group.share_bytes(2 * 2 * 8 * plan.replicas).view(torch.float64)
        self._sums = sums.view(2, 2, plan.replicas)
        self._has_weights = is_own(case, "weight")
        self._scope = find_update_scope(case.optimizer, self.model)
        self._exchange: NoiseExchange | None = None
        self._steps = 0
        self._pipe = lru_cache(maxsize=_MOST_PIPELINES)(self._make_pipe)

        if self._scope is UpdateScope.MODEL and (self._has_copies or self._device.type != "cpu"):
            raise InvalidPlanError(
                f"strategy={plan.strategy} and an optimizer whose update depends on all parameters "
                "at once, which no stage has: use another strategy"
            )

    def prepare(self, read_few: Callable[[], Batch]) -> None:
        self._example = self.place(read_few())[0]
        cut = choose_cut(self._layers, self._example, self._plan, self._device, self._group)
        if self._whole.has_new_users():
            raise _shared_memory_error(self._plan, "a parameter")
        self._first, self._end = cut.bounds[self._stage]
        self._own = self._layers[self._first : self._end]
        move_in_place(self._own, self._device)
        if self._has_copies and self._device.type == "cpu":
            for parameter in self._own.parameters():
                parameter.data = parameter.detach().clone()
        others = set(self.model.parameters()) - set(self._own.parameters())
        self._others = list(others) if self._device.type != "cpu" else []
        optimizer = self._make_optimizer()
        self.optimizers = [optimizer]
        self._update = self._make_update(optimizer)
        self.facts = cut.facts(self._layers)
        print(cut)  # noqa: T201 - to this worker's log

    def noise_obstacle(self) -> str | None:
        if self._update.averager is not None:
            return None
        if self._plan.replicas == 1:
            return (
                "a pipeline adds the gradients of its micro-batches up: several on CPUs, with "
                "strategy hybrid, are measured"
            )
        return super().noise_obstacle()

    def measure_noise(self, cost_limit: float) -> None:
        averager = self._update.averager
        assert averager is not None, "see noise_obstacle()"
        self.noise_meter = NoiseMeter(
            self.model, is_first=self._group.local_rank == 0, cost_limit=cost_limit
        )
        averager.measure_noise(self.noise_meter)
        if not averager.has_other_nodes:
            self._exchange = NoiseExchange(self._group)

    @translate_lost_workers()
    def run(self, share: Batch | None, batch: BatchSize) -> float:
        if self.noise_meter is not None:
            self.noise_meter.start_step(batch.total)
        self._whole.release_copies(self._others)
        losses, weights = sums = self._sums[self._steps % 2]
        self._steps += 1
        self._update.start()
        loss, size = 0.0, self._share.size_of(batch.node)
        if self._stage == 0:
            weights[self._replica] = 0.0
        if size:
            loss = self._run_pipeline(share, size, batch, weights)
        scale = size / batch.total
        if self._has_weights:  # written by the first stage before its activations came
            if self._device.type != "cpu":  # for which a GPU has waited, and not its worker
                self._group.barrier()
            scale = float(weights[self._replica]) if size else 0.0
        self._show_noise(scale)
        if self._is_last:
            losses[self._replica] = loss
        weight = None
        if self._has_weights:
            # Alone, each stage adds up the weights of its replicas by itself.
            counts = self._reducer is None and self._scope is not UpdateScope.MODEL
            weight = scale if self._is_last or counts else 0.0
        loss_of_all = self._update.finish(LossSum(loss, weight), is_full=batch.is_full)
        self._group.barrier()
        if loss_of_all is not None:
            return loss_of_all
        loss, total = sums.sum(1).tolist()
        return mean_of(loss, total if self._has_weights else None)[0]

    def place(self, batch: Batch) -> Batch:
        return move_batch(batch, self._device, memory_format(self._plan))

    def sync_model(self) -> None:
        counts = self._replica == 0
        owned = [*self._own.parameters(), *self._own.buffers()] if counts else []
        self._whole.sync_model(owned, self._device)

    def describe_state(self) -> TrainingState:
        state = self.model.state_dict(keep_vars=True)
        layers = _identities(self._layers)
        mine = _identities(self._own) if self._replica == 0 else set[int]()
        if self._group.local_rank == 0:  # and what no stage trains
            mine |= {id(value) for value in state.values()} - layers
        return TrainingState(
            models=[self.model],
            weights=[name for name, value in state.items() if id(value) in mine],
            optimizers=[self._update.describe_optimizer(self.model)],
            writes_optimizers=self._replica == 0 or not self._has_copies,
        )

    def close(self) -> None:
        self._connections.close()

    def _run_pipeline(
        self, share: Batch | None, size: int, batch: BatchSize, weights: Tensor
    ) -> float:
        count = count_equal_parts(size, self._plan.micro_batches)
        pipe = self._pipe(size // count, count)
        inputs: list[Any] = []
        targets: list[Any] = []
        sending = []
        if self._stage == 0:
            assert share is not None
            pieces = split_batch(share, count, size)
            scales = [size / count / batch.total] * count
            if self._has_weights:
                scales = [weigh(self._case, self.place(one)) / batch.total for one in pieces]
                weights[self._replica] = sum(scales)
            sending = send_targets((share[1], scales), self._last_rank, self._pipeline)
            inputs = [self.place(piece[0]) for piece in pieces]
            self._check_shapes(inputs[0])
        elif self._is_last:
            received, scales = receive_targets(self._first_rank, self._pipeline)
            pieces = split_batch(received, count, size)
            targets = [
                (self.place(piece), scale) for piece, scale in zip(pieces, scales, strict=True)
            ]
        loss = pipe.run(inputs, targets)
        for work in sending:
            work.wait()
        return loss

    def _show_noise(self, scale: float) -> None:
        """Show the meter this worker's stage of its replica, whose loss was scaled by that."""
        meter, averager = self.noise_meter, self._update.averager
        if meter is None or averager is None:
            return
        if meter.is_measuring:
            meter.add_part(averager.gradients(), scale, counts=self._stage == 0)
        if self._exchange is not None:
            self._exchange.run(meter)

    def _check_shapes(self, inputs: Any) -> None:
        """Refuse what the stages have not agreed on the shapes of.

        Raises:
            UseCaseError: Its samples have another shape than the first ones.
        """
        shapes, expected = map(_sample_shapes, (inputs, self._example))
        if shapes != expected:
            raise UseCaseError(
                f"samples of shape {shapes}, and the first ones have {expected}: a pipeline needs "
                "inputs of one shape; pad them to one length, or use --strategies without "
                "pipeline, hybrid"
            )

    def _make_pipe(self, size: int, count: int) -> MicroBatchPipeline:
        """Make the pipeline for so many micro-batches of a size."""
        example = repeat_samples(self._example, size)
        specs = boundary_specs(self._layers, example, self._plan, self._device)
        module = StageModule(
            self._own,
            incoming=specs[self._first - 1] if self._stage else None,
            outgoing=None if self._is_last else specs[self._end - 1],
            precision=lambda: autocast(self._plan, self._device.type),
            loss=self._loss,
        )
        return MicroBatchPipeline(
            module,
            stage=self._stage,
            group=self._pipeline,
            device=self._device,
            micro_batches=count,
            schedule=str(self._plan.options.get("schedule", "1f1b")),
        )

    def _loss(self, output: Any, target: tuple[Any, float]) -> Tensor:
        targets, scale = target
        if scale:
            return self._case.loss(output, targets) * scale
        # Zero, with a gradient of zeros: the stages before wait for one.
        _, tensors = flatten(output)
        empty = [one.flatten()[:0].sum().real for one in tensors if one.requires_grad]
        return torch.stack(empty).sum()

    @property
    def _has_copies(self) -> bool:
        """Whether each of several replicas has its own copy of the parameters of a stage."""
        average = self._plan.options.get("average", "shared")
        return self._plan.replicas > 1 and (self._device.type != "cpu" or average == "all_reduce")

    def _make_optimizer(self) -> Optimizer:
        """Make the optimizer of what this worker updates.

        Raises:
            InvalidPlanError: The use case's trains nothing of this stage.
        """
        updated = self.model if self._scope is UpdateScope.MODEL else self._own
        try:
            return make_optimizer(self._plan, self._case, updated.parameters(), self.model)
        except ValueError as error:
            if "empty parameter list" not in str(error):  # as torch says it
                raise
            raise InvalidPlanError(
                f"strategy={self._plan.strategy} and a stage of layers {self._first} to "
                f"{self._end - 1}, of which optimizer(parameters) trains nothing: use fewer "
                "stages, another cut, or another strategy"
            ) from error

    def _make_update(self, optimizer: Optimizer) -> StageUpdate:
        norm = self._case.max_gradient_norm
        clipper = None if norm is None else GradientClipper(norm, self._group)
        if self._scope is UpdateScope.MODEL:
            return SharedUpdate(
                self.model, optimizer, self._group, clipper, self._reducer, self._scope
            )
        if self._plan.replicas == 1 and self._reducer is None:
            return SingleUpdate(self._own, optimizer, clipper)
        same_stage = SubGroup(self._group, self._same_stage_ranks, self._wait_for_same_stage)
        if not self._has_copies and self._device.type == "cpu":
            return SharedUpdate(
                self._own, optimizer, same_stage, clipper, self._reducer, self._scope
            )
        gives_sparse = self._scope is not UpdateScope.ELEMENT
        staging = None
        if self._reducer is not None:
            staging = GradientStagingBuffer(
                self._own, same_stage, self._reducer, gives_sparse=gives_sparse
            )
        group = self._same_stage_group
        return ReducedUpdate(
            self._own, optimizer, group, clipper, staging, gives_sparse=gives_sparse
        )

    def _wait_for_same_stage(self) -> None:
        with translate_lost_workers():
            torch.distributed.barrier(self._same_stage_group)


def _sample_shapes(batch: Any) -> list[tuple[int, ...]]:
    return [tuple(leaf.shape[1:]) for leaf in leaves(batch) if isinstance(leaf, Tensor)]


def _identities(module: nn.Module) -> set[int]:
    return {id(tensor) for tensor in (*module.parameters(), *module.buffers())}


def _shared_memory_error(plan: Plan, what: str) -> InvalidPlanError:
    return InvalidPlanError(
        f"strategy={plan.strategy} and a model that keeps a tensor in the memory of {what}: its "
        "updates may be made by another process: give it a copy, or use another strategy"
    )


def _layers_of(case: UseCase, model: nn.Module) -> nn.Sequential:
    if is_own(case, "step"):
        raise UseCaseError(
            "the use case has a step() of its own, which cannot be cut into stages: use "
            "--strategies without pipeline, hybrid, or give loss(output, target) in its place"
        )
    layers = case.layers(model)
    if layers is None:
        raise UseCaseError(
            "the use case gives no layers(): add it, or use --strategies without pipeline, hybrid"
        )
    if has_extra_state(layers):
        raise UseCaseError(
            "layers() have a get_extra_state(), which stages do not exchange: use --strategies "
            "without pipeline, hybrid"
        )
    return layers
