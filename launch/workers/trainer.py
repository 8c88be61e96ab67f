"""How does a worker train? Step after step of its share, asking its rank in between."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import accumulate, count
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from launch.data.batch import Batch, num_samples
from launch.data.loading import load
from launch.data.prefetch import prefetch
from launch.data.samples import Part, ShareSampler, in_order, shares
from launch.data.split import BatchSize, Indices, NodeSplit
from launch.errors import CheckpointError
from launch.exchange.questions import Asking, Orders
from launch.plan import Plan
from launch.training.group import LocalGroup
from launch.training.step import TrainStep
from launch.use_cases._base import UseCase
from launch.workers.input import (
    bring_to_device,
    fill_together,
    open_training,
    open_validation,
    trial_samples,
)
from launch.workers.keeper import Keeper, Progress
from launch.workers.random_state import Dice, Draw
from launch.workers.reports import (
    NoStep,
    Prepared,
    Reporter,
    StepsFinished,
    Validated,
    Warned,
)
from launch.workers.step_reports import StepReports
from launch.workers.task import Purpose, Task

Work = Iterator[tuple[Indices, BatchSize]]
"""This worker's samples of each step, and how many all have."""

_FEW = 2
"""Samples that show what a batch looks like."""


class Trainer:
    """One worker's training loop.

    Attributes:
        progress: How far it is.
        num_samples: To train on, of all nodes.
        num_validation_samples: Likewise.
    """

    def __init__(
        self,
        task: Task,
        plan: Plan,
        case: UseCase,
        step: TrainStep,
        reporter: Reporter,
        rank: Asking | None,
    ) -> None:
        self._rank = rank
        self._task = task
        self._plan = plan
        self._case = case
        self._step = step
        self._reporter = reporter
        data = Path(task.data) if task.data else None
        self._training = open_training(plan, case.dataset(data, train=True))
        self._validation = open_validation(plan, case.dataset(data, train=False))
        step.prepare(self._read_few)
        if step.facts and task.local_rank == 0:
            reporter.send(Prepared(facts=step.facts))
        samples = len(self._training)  # type: ignore[arg-type]
        self._sampler = ShareSampler(
            samples, task.split, part=step.part or Part(0, 1), seed=task.seed
        )
        self.num_samples = samples
        self.num_validation_samples = len(self._validation)  # type: ignore[arg-type]
        steps_per_epoch = -(-samples // task.split.global_batch)
        schedules = [case.schedule(optimizer, steps_per_epoch) for optimizer in step.optimizers]
        self._schedules = [schedule for schedule in schedules if schedule is not None]
        self._device = torch.device(plan.devices[task.local_rank % len(plan.devices)])
        self._reports = StepReports(
            reporter if task.local_rank == 0 else None, is_compiled=plan.compile
        )
        self._dice = Dice(seed=task.seed, rank=task.node, local_rank=task.local_rank)
        self.progress = Progress()

    def _read_few(self) -> Batch:
        samples = list(range(min(_FEW, len(self._training))))  # type: ignore[arg-type]
        work = iter([(samples, BatchSize(len(samples), len(samples)))])
        batch: Batch | None = next(load(self._training, work, loader_workers=0))[0]
        assert batch is not None, "it has samples"
        return batch

    def prepare_input(self, group: LocalGroup) -> None:
        """Do what the plan wants done before the first step. Collective.

        A trial times steps that find their pictures decoded, as all steps but those of a
        training's first epoch do.
        """
        is_trial = self._task.purpose is Purpose.TIME
        most = trial_samples(self._plan) if is_trial else None
        self._samples = self._sampler.some(most)
        if is_trial or self._plan.input == "device":
            fill_together(self._training, self._samples, group)
        if self._step.part is not None:
            self._training = bring_to_device(
                self._plan, self._training, self._samples, self._task.local_rank
            )

    def start_keeping(self, group: LocalGroup) -> Keeper:
        """Make what keeps this training; go on with the one that was kept, if one was named."""
        keeper = Keeper(
            self._task,
            group,
            self._step,
            self._schedules,
            samples=self.num_samples,
            reporter=self._reporter,
        )
        self.progress = keeper.resume(self._rank)
        return keeper

    def keep(self, keeper: Keeper, *, is_needed: bool = False) -> None:
        """Write a checkpoint of where the training is.

        Args:
            keeper: Writes it.
            is_needed: Whether the training is lost without it; else a warning is enough.

        Raises:
            CheckpointError: It is needed, and cannot be written.
        """
        is_first = self._task.local_rank == 0
        if is_first:
            self._reporter.send(NoStep())
        try:
            keeper.save(self.progress, self._sampler.split)
        except CheckpointError as error:
            if is_needed:
                raise
            if is_first:
                self._reporter.send(Warned(message=f"{error}: the training does without it"))

    def train(self, keeper: Keeper) -> bool:
        """Train one epoch, or what is left of it; tell whether it came to its end.

        Where the rank changes the shares, reading begins anew from where the steps have come to.
        """
        while self.progress.position < self.num_samples:
            work = self._sampler.epoch(self.progress.epoch, self.progress.position)
            sizes = (size.total for _, size in work)
            positions = accumulate(sizes, initial=self.progress.position)
            orders = self._train(iter(work), positions, keeper)
            if orders.stop:
                return False
            if orders.node_batches is not None:
                self._sampler.split = NodeSplit(orders.node_batches, self._task.node)
        return True

    def train_for_ever(self) -> None:
        step = self._task.split.global_batch
        self._train(self._sampler.endless(self._samples), count(0, step), None)

    def _train(self, work: Work, positions: Iterator[int], keeper: Keeper | None) -> Orders:
        """Make steps until there is no more work, or the rank wants something else done.

        Args:
            work: What this worker reads for each step.
            positions: Samples of the epoch that all nodes have done before each.
            keeper: Writes checkpoints between them.

        Returns:
            What the rank wants.
        """
        self._step.model.train()
        self._reports.start()
        orders, epoch = Orders(), self.progress.epoch
        asked = time.perf_counter()
        for share, size in self._batches(work, positions):
            waited_s = time.perf_counter() - asked
            # A GPU that still computes the step before has not waited for this one's input.
            input_s = 0.0 if self._reports.is_computing() else waited_s
            self._dice.throw(Draw.STEP, epoch, self.progress.position)
            loss = self._step.run(share, size)
            for schedule in self._schedules:
                schedule.step()
            self._reports.add(epoch=epoch, samples=size.total, loss=loss, input_s=input_s)
            self.progress = self.progress.after(size.total)
            if self._rank is not None:
                orders = self._rank.what_next()
                if orders.checkpoint and keeper is not None:
                    self._finish_steps(epoch)
                    self.keep(keeper, is_needed=orders.stop)
                    self._reports.start()
                if orders.stop or orders.node_batches is not None:
                    break
            asked = time.perf_counter()
        self._finish_steps(epoch)
        return orders

    def _finish_steps(self, epoch: int) -> None:
        self._reports.finish()
        started = time.perf_counter()
        self._step.finish()
        if self._task.local_rank == 0:
            time_s = time.perf_counter() - started
            self._reporter.send(StepsFinished(epoch=epoch, time_s=time_s))

    def _batches(
        self, work: Work, positions: Iterator[int]
    ) -> Iterator[tuple[Batch | None, BatchSize]]:
        if self._step.part is None:
            return ((None, size) for _, size in work)
        return self._load(self._training, work, Draw.TRAINING_SAMPLES, positions)

    def _load(
        self, dataset: Dataset[Any], work: Work, draw: Draw, positions: Iterator[int]
    ) -> Iterator[tuple[Batch | None, BatchSize]]:
        workers, is_gpu = self._plan.loader_workers, self._device.type == "cuda"
        epoch = self.progress.epoch
        seeds = (self._dice.seed_of(draw, epoch, position) for position in positions)
        batches = load(dataset, work, loader_workers=workers, pin_memory=is_gpu, seeds=seeds)
        return prefetch(batches, self._device)

    @torch.no_grad()
    def validate(self) -> None:
        """Judge this worker's share of the validation samples, which ends the epoch."""
        if self._task.local_rank == 0:
            self._reporter.send(NoStep())
        started = time.perf_counter()
        epoch = self.progress.epoch
        self._dice.throw(Draw.VALIDATION, epoch)
        model = self._step.model
        model.eval()
        loss_sum, samples, metric_sums = 0.0, 0, dict[str, float]()
        for batch in self._validation_batches():
            inputs, targets = self._step.place(batch)
            output = model(inputs)
            count = num_samples(batch)
            samples += count
            loss_sum += self._case.loss(output, targets).item() * count
            for name, value in self._case.metrics(output, targets).items():
                metric_sums[name] = metric_sums.get(name, 0.0) + float(value) * count
        self._reporter.send(
            Validated(
                epoch=epoch,
                samples=samples,
                loss_sum=loss_sum,
                metric_sums=metric_sums,
                time_s=time.perf_counter() - started,
            )
        )
        self.progress = self.progress.next_epoch()

    def _validation_batches(self) -> Iterator[Any]:
        every = list(range(self.num_validation_samples))
        of_node, _ = self._task.split.of(every)
        mine = shares(of_node, self._task.group_size)[self._task.local_rank]
        size = max(1, min(self._plan.node_batch // self._task.group_size, 64))
        work = [
            ([mine[i] for i in batch], BatchSize(len(batch), len(batch)))
            for batch in in_order(len(mine), size)
        ]
        for batch, _ in self._load(self._validation, iter(work), Draw.VALIDATION_SAMPLES, count()):
            if batch is not None:
                yield batch
