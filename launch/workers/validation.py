"""Validation of a worker's share of the samples, and its mean over the workers of all nodes."""

from __future__ import annotations

import time
from itertools import count
from typing import Any

import torch
from torch.utils.data import Dataset

from launch.data.random_state import RandomUse, SeedSource
from launch.data.samples import split_evenly
from launch.data.split import BatchSize, Work
from launch.reports import Validated
from launch.training.judge import judge
from launch.training.loss import weigh
from launch.workers.checkpointer import TrainingWorker
from launch.workers.share_loader import ShareLoader

_MOST_SAMPLES = 64
"""Of a batch: larger ones make no validation faster."""


class Validation:
    """Judges the model of a step.

    Collective: every worker of all nodes makes one, and calls `run` with the others.
    """

    def __init__(
        self,
        worker: TrainingWorker,
        dataset: Dataset[Any],
        loader: ShareLoader,
        seed_source: SeedSource,
    ) -> None:
        self._worker = worker
        self._task = task = worker.task
        self._group = group = worker.group
        self._dataset = dataset
        self._loader = loader
        self._seed_source = seed_source
        self._batch_size = max(1, min(worker.plan.node_batch // task.group_size, _MOST_SAMPLES))
        self._sums = group.share_bytes(16 * group.size).view(torch.float64).view(group.size, 2)

    @torch.no_grad()
    def run(self, epoch: int) -> float | None:
        """Validate after an epoch; give the mean loss over all workers, ``None`` without weights.

        Each worker's loss counts with its weight: its samples, where the use case does not say.
        """
        started = time.perf_counter()
        case, step = self._worker.case, self._worker.step
        self._seed_source.seed_generators_for(RandomUse.VALIDATION, epoch)
        step.model.eval()
        loss_sum, weight_sum, samples, metric_sums = 0.0, 0.0, 0, dict[str, float]()
        work = self._work()
        for batch, _ in self._loader.load(
            self._dataset, work, RandomUse.VALIDATION_SAMPLES, epoch, count()
        ):
            assert batch is not None, "none of its batches is empty"
            placed, size = step.place(batch), case.size(batch)
            batch_loss, metrics = judge(case, step.model, placed)
            samples += size
            if weight := weigh(case, placed):
                loss_sum += batch_loss * weight
                weight_sum += weight
            for name, value in metrics.items():
                metric_sums[name] = metric_sums.get(name, 0.0) + float(value) * size
        self._worker.reporter.send(
            Validated(
                epoch=epoch,
                samples=samples,
                loss_sum=loss_sum,
                weight=weight_sum,
                metric_sums=metric_sums,
                time_s=time.perf_counter() - started,
            )
        )
        return self._mean(loss_sum, weight_sum)

    def _work(self) -> Work:
        of_node, _ = self._task.split.of(list(range(len(self._dataset))))  # type: ignore[arg-type]
        mine = split_evenly(of_node, self._task.group_size)[self._task.local_rank]
        for low in range(0, len(mine), self._batch_size):
            batch = mine[low : low + self._batch_size]
            yield batch, BatchSize(len(batch), len(batch))

    def _mean(self, loss_sum: float, weight: float) -> float | None:
        self._sums[self._group.local_rank] = torch.tensor([loss_sum, weight], dtype=torch.float64)
        self._group.barrier()
        loss, total = self._sums.sum(0).tolist()
        self._group.barrier()  # all have read
        if (rank := self._worker.rank) is not None:
            loss, total = rank.add(loss), rank.add(total)
        return loss / total if total else None
