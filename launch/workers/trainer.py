"""Training loop of a worker: step after step of its share, with requests to its rank in between."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from launch.checkpoints.manifest import BestValidation
from launch.checkpoints.weights import save_weights
from launch.data.batch import SizedBatch
from launch.data.random_state import RandomUse, SeedSource
from launch.data.samples import Part, ShareSampler
from launch.data.split import NodeSplit, Work
from launch.errors import CheckpointError, UseCaseError
from launch.gradient_sync.node_channel.requests import Directive
from launch.noise_scale.efficiency import learning_rate_factor
from launch.noise_scale.estimate import NoiseScale
from launch.reports import BestWeightsSaved, StepsFinished, StepsPaused, StrategyPrepared
from launch.training.schedule import make_schedule, scale_learning_rates
from launch.workers.checkpointer import Checkpointer, TrainingPosition, TrainingWorker
from launch.workers.finiteness import check_finite_loss
from launch.workers.input import (
    copy_to_device,
    decode_shares,
    open_training,
    open_validation,
    trial_samples,
)
from launch.workers.share_loader import ShareLoader
from launch.workers.step_permits import StepPermits
from launch.workers.step_timer import LaunchedStep, StepTimer
from launch.workers.task import Purpose
from launch.workers.validation import Validation

_TRIAL_EPOCHS = 1000
"""Epochs that a schedule is made for in a trial, which ends after some steps: schedules fail when
they are asked for more steps than they were made for."""


class Trainer:
    """One worker's training loop.

    Attributes:
        progress: How far it is.
        num_samples: To train on, of all nodes.
        num_validation_samples: Likewise.
    """

    def __init__(self, worker: TrainingWorker) -> None:
        plan, case = worker.plan, worker.case
        self._worker = worker
        self._task = task = worker.task
        self._step = step = worker.step
        self._rank = worker.rank
        self._reporter = reporter = worker.reporter
        data = task.workload.data_path
        self._is_trial = task.purpose is Purpose.TIME
        self._training = open_training(
            plan, case, case.dataset(data, train=True), is_trial=self._is_trial
        )
        self._validation_samples = open_validation(plan, case.dataset(data, train=False))
        self._device = torch.device(plan.device_of(task.local_rank))
        self._seed_source = SeedSource(
            seed=task.workload.seed, rank=task.node, local_rank=task.local_rank
        )
        self._loader = ShareLoader(plan, case, self._device, self._seed_source)
        step.prepare(lambda: self._loader.read_few(self._training))
        if step.facts and task.local_rank == 0:
            reporter.send(StrategyPrepared(facts=step.facts))
        samples = len(self._training)  # type: ignore[arg-type]
        self._frozen = [(n, p) for n, p in step.model.named_parameters() if not p.requires_grad]
        self._sampler = ShareSampler(
            samples, task.split, part=step.part or Part(0, 1), seed=task.workload.seed
        )
        self.num_samples = samples
        self.num_validation_samples = len(self._validation_samples)  # type: ignore[arg-type]
        steps_per_epoch = -(-samples // task.split.global_batch)
        epochs = _TRIAL_EPOCHS if self._is_trial else task.epochs
        factor = learning_rate_factor(plan.lr_scaling, task.split.global_batch, case.default_batch)
        for optimizer in step.optimizers:
            scale_learning_rates(optimizer, factor)
        schedules = [
            make_schedule(case, optimizer, steps_per_epoch=steps_per_epoch, epochs=epochs)
            for optimizer in step.optimizers
        ]
        self._schedules = [schedule for schedule in schedules if schedule is not None]
        self._allow_nan = task.allow_nan or self._is_trial
        self._step_timer = StepTimer(
            reporter if task.local_rank == 0 else None,
            is_compiled=plan.compile,
            allow_nan=self._allow_nan,
        )
        self._learning_rates: list[Any] = []
        self._noise_obstacle: str | None = None
        self._validation: Validation | None = None
        self._permits: StepPermits | None = None
        self.progress = TrainingPosition()

    def prepare_input(self) -> None:
        """Prepare the input of the plan before the first step. Collective.

        A trial times steps that find their pictures decoded, as all steps but those of a
        training's first epoch do.
        """
        plan = self._worker.plan
        most = trial_samples(plan) if self._is_trial else None
        self._samples = self._sampler.draw_subset(most)
        if self._is_trial or plan.input == "device":
            decode_shares(self._training, self._samples, self._worker.group)
        if self._step.part is not None:
            self._training = copy_to_device(plan, self._training, self._samples, self._device)

    def start_checkpointer(self) -> Checkpointer:
        """Make the checkpointer of this training; resume from a checkpoint, if one was named."""
        checkpointer = Checkpointer(self._worker, self._schedules, samples=self.num_samples)
        self.progress = checkpointer.resume()
        self._validation = Validation(
            self._worker, self._validation_samples, self._loader, self._seed_source
        )
        return checkpointer

    def measure_noise(self, cost_limit: float) -> None:
        """Begin to measure the gradient noise scale, if every node can. Collective over all."""
        obstacle = self._task.noise_obstacle or self._step.noise_obstacle()
        nodes = len(self._task.split.node_batches)
        if self._rank is not None and nodes > 1:
            able = self._rank.add(float(obstacle is None))
            if able < nodes:
                obstacle = obstacle or "another host cannot measure it"
        self._noise_obstacle = obstacle
        if obstacle is None:
            self._step.measure_noise(cost_limit)

    def save_checkpoint(self, checkpointer: Checkpointer, *, is_needed: bool = False) -> None:
        """Write a checkpoint of the present state.

        Args:
            checkpointer: Writes it.
            is_needed: Whether the training is lost without it; else a warning is enough.

        Raises:
            CheckpointError: It is needed, and cannot be written.
        """
        self._report_pause()
        try:
            checkpointer.save(self.progress, self._sampler.split)
        except CheckpointError as error:
            if is_needed:
                raise
            if self._task.local_rank == 0:
                self._reporter.warning(f"{error}: the training does without it")

    def train(self, checkpointer: Checkpointer) -> bool:
        """Train one epoch, or what is left of it; return whether it reached its end.

        Where the rank changes the shares, reading starts anew from the present position.
        """
        while self.progress.position < self.num_samples:
            work = self._sampler.epoch(self.progress.epoch, self.progress.position)
            sizes = (size.total for _, size in work)
            positions = accumulate(sizes, initial=self.progress.position)
            directive = self._train(iter(work), positions, checkpointer)
            if directive.stop:
                return False
            if directive.node_batches is not None:
                self._report_pause()  # a step of another size may have to be compiled
                self._sampler.split = NodeSplit(directive.node_batches, self._task.node)
        return True

    def take_turns(self, permits: StepPermits) -> None:
        """Take a permit before each step from now on; wait for the first one.

        The last step takes one too, for what comes after it: validation, the end.
        """
        self._permits = permits
        permits.take()

    def train_by_permits(self, permits: StepPermits) -> None:
        """Train for ever, each step with a permit."""
        step = self._task.split.global_batch
        self.take_turns(permits)
        self._train(self._sampler.endless(self._samples), count(0, step), None)

    def _train(
        self, work: Work, positions: Iterator[int], checkpointer: Checkpointer | None
    ) -> Directive:
        """Make steps until there is no more work, or a directive of the rank ends them.

        Args:
            work: Samples of this worker for each step.
            positions: Samples of the epoch that all nodes have done before each.
            checkpointer: Writes checkpoints between them.

        Returns:
            The last directive of the rank.
        """
        self._step.model.train()
        self._step_timer.start()
        directive, epoch = Directive(), self.progress.epoch
        requested = time.perf_counter()
        for share, size in self._batches(work, positions):
            waited_s = time.perf_counter() - requested
            # A GPU that still computes the step before has not waited for this one's input.
            input_s = 0.0 if self._step_timer.is_computing() else waited_s
            self._seed_source.seed_generators_for(RandomUse.STEP, epoch, self.progress.position)
            loss = self._step.run(share, size)
            self._check_frozen()
            if warning := self._step.take_warning():
                self._reporter.warning(warning)
            self._learning_rates = _learning_rates(self._step.optimizers)
            for schedule in self._schedules:
                schedule.step()
            self.progress = self.progress.after(size.total)
            self._step_timer.add(
                LaunchedStep(
                    epoch=epoch,
                    number=self.progress.step,
                    samples=size.total,
                    loss=loss,
                    input_s=input_s,
                    read_ahead=self._loader.read_ahead,
                    noise=self._take_noise(),
                )
            )
            if self._rank is not None:
                directive = self._rank.get_directive()
                if directive.checkpoint and checkpointer is not None:
                    self._finish_steps(epoch)
                    self.save_checkpoint(checkpointer, is_needed=directive.stop)
                    self._step_timer.start()
                if directive.stop or directive.node_batches is not None:
                    break
            if self._permits is not None and not self._permits.try_take():
                self._step_timer.finish()
                self._permits.take()
                self._step_timer.start()
            requested = time.perf_counter()
        self._finish_steps(epoch)
        return directive

    def _check_frozen(self) -> None:
        """Check that no parameter is trained that was frozen before the first step.

        Memory for the sums of gradients is shared before that step: some strategies would train
        such a parameter, and others would not.

        Raises:
            UseCaseError: One is.
        """
        for name, parameter in self._frozen:
            if parameter.requires_grad:
                raise UseCaseError(
                    f"parameter {name!r} was frozen before the first step, and no longer is after "
                    f"step {self.progress.step + 1}: train it from the start, with a learning rate "
                    "of 0 until then"
                )

    def _finish_steps(self, epoch: int) -> None:
        self._step_timer.finish()
        started = time.perf_counter()
        self._step.finish()
        if self._task.local_rank == 0:
            time_s = time.perf_counter() - started
            rates = tuple(map(float, self._learning_rates))
            meter = self._step.noise_meter
            self._reporter.send(
                StepsFinished(
                    epoch=epoch,
                    time_s=time_s,
                    learning_rates=rates,
                    noise=None if meter is None else meter.value(),
                    noise_obstacle=self._noise_obstacle,
                )
            )

    def _take_noise(self) -> NoiseScale | None:
        """Give the gradient noise scale, where the last step has shown something new of it."""
        meter = self._step.noise_meter
        if meter is None or self._task.local_rank or not meter.take_is_new():
            return None
        return meter.value()

    def _batches(self, work: Work, positions: Iterator[int]) -> Iterator[SizedBatch]:
        if self._step.part is None:
            return ((None, size) for _, size in work)
        epoch = self.progress.epoch
        return self._loader.load(self._training, work, RandomUse.TRAINING_SAMPLES, epoch, positions)

    def validate(self) -> None:
        """Validate this worker's share of the samples, which ends the epoch. Collective.

        Raises:
            NotFiniteError: The loss is NaN or infinite; on every worker of all nodes.
        """
        assert self._validation is not None, "a training has a checkpointer"
        self._report_pause()
        epoch = self.progress.epoch
        loss = self._validation.run(epoch)
        if loss is not None and not self._allow_nan:
            check_finite_loss(loss, f"the validation loss of epoch {epoch + 1}")
        self.progress = self.progress.next_epoch()
        if self._task.best_weights is not None and loss is not None and math.isfinite(loss):
            self._keep_if_best(loss, self._task.best_weights)

    def _report_pause(self) -> None:
        """Report that the next step may take any time."""
        if self._task.local_rank == 0:
            self._reporter.send(StepsPaused())

    def _keep_if_best(self, loss: float, weights: str) -> None:
        """Keep the weights if no validation before had a lower loss."""
        if self.progress.best is not None and loss >= self.progress.best.loss:
            return
        best = BestValidation(epoch=self.progress.epoch, loss=loss, weights=weights)
        is_writer = self._task.node == 0 and self._task.local_rank == 0
        if is_writer:
            try:
                save_weights(self._step.model, Path(weights))
            except CheckpointError as error:
                lost = f"the best weights, of epoch {best.epoch}, are not kept"
                self._reporter.warning(f"{lost}: {error}")
                return
        self.progress = replace(self.progress, best=best)
        if is_writer:
            self.report_best()

    def report_best(self) -> None:
        """Report where the weights of the best validation are, if there are any."""
        if (best := self.progress.best) is None:
            return
        if not Path(best.weights).exists():
            lost = f"the best weights, of epoch {best.epoch}, are not at {best.weights} any more"
            self._reporter.warning(f"{lost}: only better ones will be kept")
            return
        self._reporter.send(
            BestWeightsSaved(path=best.weights, epoch=best.epoch, validation_loss=best.loss)
        )


def _learning_rates(optimizers: Sequence[Optimizer]) -> list[Any]:
    """Give the learning rate of each group of the first optimizer, which the others have too.

    Nothing waits for a GPU that has it: a schedule is about to change such a rate in place.
    """
    rates = [group["lr"] for group in optimizers[0].param_groups if "lr" in group]
    return [rate.clone() if isinstance(rate, Tensor) else rate for rate in rates]
