"""Loader of a worker's share: its samples of each step, as batches on its device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import Dataset

from launch.data.batch import Batch, SizedBatch
from launch.data.loading import ReadAhead, load, read_batch
from launch.data.prefetch import prefetch
from launch.data.random_state import RandomUse, SeedSource
from launch.data.split import Work
from launch.plan import Plan
from launch.use_cases._base import UseCase

_SAMPLE_BATCH = 2
"""Samples of a batch that shows types and shapes."""


class ShareLoader:
    """Loads batches as a plan says, each with random numbers of its place in the training."""

    def __init__(
        self, plan: Plan, case: UseCase, device: torch.device, seed_source: SeedSource
    ) -> None:
        self._loader_workers = plan.loader_workers
        self._collate = case.collate
        self._device = device
        self._seed_source = seed_source
        self._read_ahead = ReadAhead()

    @property
    def read_ahead(self) -> int:
        """Batches that are ready and not used yet, of what was loaded last."""
        return self._read_ahead.count

    def load(
        self,
        dataset: Dataset[Any],
        work: Work,
        use: RandomUse,
        epoch: int,
        positions: Iterator[int],
    ) -> Iterator[SizedBatch]:
        """Load the share of each step, ``None`` where it is empty.

        Args:
            dataset: The samples.
            work: Which of them each step has.
            use: Purpose of the random numbers in them.
            epoch: From 0.
            positions: Samples of the epoch that are done before each step.
        """
        self._read_ahead = ReadAhead()
        batches = load(
            dataset,
            work,
            loader_workers=self._loader_workers,
            pin_memory=self._device.type == "cuda",
            seeds=(self._seed_source.seed_of(use, epoch, position) for position in positions),
            read_ahead=self._read_ahead,
            collate=self._collate,
        )
        return prefetch(batches, self._device)

    def read_few(self, dataset: Dataset[Any]) -> Batch:
        """Read a batch that shows types and shapes."""
        samples = list(range(min(_SAMPLE_BATCH, len(dataset))))  # type: ignore[arg-type]
        return read_batch(dataset, samples, self._collate)
