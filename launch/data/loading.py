"""How do samples get from a data set into the training loop?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

from torch.utils.data import DataLoader, Dataset

from launch.data.decoded_pictures import DecodedPictures
from launch.data.device_pictures import DevicePictures
from launch.data.seeded_samples import SeededBatch, SeededSamples
from launch.data.split import BatchSize, Indices
from launch.process_end import end_with_parent


def load(
    dataset: Dataset[Any],
    work: Iterator[tuple[Indices, BatchSize]],
    *,
    loader_workers: int,
    pin_memory: bool = False,
    seeds: Iterator[int] | None = None,
) -> Iterator[tuple[Any | None, BatchSize]]:
    """Read the share of each batch from the data set.

    Args:
        dataset: The samples.
        work: Which of them the share of each batch has, and the size of the whole batch.
        loader_workers: Processes that read; 0 reads here.
        pin_memory: Whether batches are put where a GPU can fetch them from.
        seeds: One for each batch of ``work``, from which what is random in its samples is drawn;
            asked for right after the batch.

    Yields:
        The collated share, ``None`` where it is empty, and the size of the whole batch.
    """
    sizes: list[tuple[bool, BatchSize]] = []

    def keys() -> Iterator[Any]:
        for indices, size in work:
            sizes.append((bool(indices), size))
            seed = None if seeds is None else next(seeds)
            if indices:
                yield indices if seed is None else SeededBatch(indices, seed)

    loader: DataLoader[Any] = DataLoader(
        dataset if seeds is None else SeededSamples(dataset),
        batch_sampler=keys(),
        # Data sets of decoded pictures give a batch whole.
        collate_fn=_keep if isinstance(dataset, (DecodedPictures, DevicePictures)) else None,
        num_workers=loader_workers,
        pin_memory=pin_memory,
        # Other threads of this worker are idle while it forks, and a loader leaves the GPU alone;
        # a fresh interpreter would import torch again for every trial.
        multiprocessing_context="fork" if loader_workers else None,
        worker_init_fn=partial(_end_with_worker, os.getpid()) if loader_workers else None,
    )
    for batch in loader:
        while not sizes[0][0]:
            yield None, sizes.pop(0)[1]
        yield batch, sizes.pop(0)[1]
    for _, size in sizes:
        yield None, size


def _keep(batch: Any) -> Any:
    return batch


def _end_with_worker(worker_pid: int, _loader: int) -> None:
    """Let a loader end when its worker is killed; by itself it would look up every 5 s only."""
    end_with_parent(worker_pid)
