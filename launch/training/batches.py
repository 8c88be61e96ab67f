"""Which samples does a worker read at which step, and how do they get there?"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count, pairwise
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from launch.process_end import end_with_parent

Indices = list[int]


def shares(batch: Sequence[int], parts: int) -> list[Indices]:
    """Cut a batch into ``parts`` shares whose sizes differ by one sample at most.

    The small rest at the end of an epoch goes to fewer workers, at least two samples each while
    there are so many: layers that normalise over a batch refuse a single one.
    """
    used = usable_parts(len(batch), parts)
    bounds = [len(batch) * part // used for part in range(used + 1)]
    return [list(batch[low:high]) for low, high in pairwise(bounds)] + [[]] * (parts - used)


def usable_parts(num_samples: int, parts: int) -> int:
    """Give the number of parts, ``parts`` at most, that get two samples each, or one part."""
    return max(1, min(parts, num_samples // 2))


def epoch_batches(num_samples: int, node_batch: int, *, seed: int, epoch: int) -> list[Indices]:
    """Shuffle one epoch and cut it into node batches; every sample is in exactly one.

    The order depends on ``seed`` and ``epoch`` alone, so any number of workers, each for itself,
    finds the same one.
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(num_samples, generator=generator).tolist()
    return [order[low : low + node_batch] for low in range(0, num_samples, node_batch)]


def in_order(num_samples: int, batch_size: int) -> list[Indices]:
    """Cut the samples, as they come, into batches."""
    return [
        list(range(low, min(low + batch_size, num_samples)))
        for low in range(0, num_samples, batch_size)
    ]


class ShareSampler:
    """Gives one worker's share of every node batch, epoch after epoch or for one epoch.

    Args:
        num_samples: Samples in the data set.
        node_batch: Samples per step over all workers.
        part: This worker.
        parts: Workers that share a batch.
        seed: Order of the samples.
    """

    def __init__(
        self, num_samples: int, node_batch: int, *, part: int, parts: int, seed: int
    ) -> None:
        self._num_samples = num_samples
        self._node_batch = node_batch
        self._part = part
        self._parts = parts
        self._seed = seed

    def epoch(self, epoch: int) -> list[tuple[Indices, int]]:
        """Give the share and the size of each batch of one epoch."""
        batches = epoch_batches(self._num_samples, self._node_batch, seed=self._seed, epoch=epoch)
        return [(shares(batch, self._parts)[self._part], len(batch)) for batch in batches]

    def endless(self) -> Iterator[tuple[Indices, int]]:
        """Give full batches only, for ever: all steps of a trial do equal work.

        A data set smaller than one batch is gone through several times to fill it.
        """
        waiting: Indices = []
        for epoch in count():
            for batch in epoch_batches(
                self._num_samples, self._node_batch, seed=self._seed, epoch=epoch
            ):
                waiting += batch
                if len(waiting) >= self._node_batch:
                    full, waiting = waiting[: self._node_batch], waiting[self._node_batch :]
                    yield shares(full, self._parts)[self._part], self._node_batch


def load(
    dataset: Dataset[Any], work: Iterator[tuple[Indices, int]], *, loader_workers: int
) -> Iterator[tuple[Any | None, int]]:
    """Read the share of each batch from the data set.

    Yields:
        The collated share, ``None`` where it is empty, and the size of the whole batch.
    """
    sizes: list[tuple[bool, int]] = []

    def keys() -> Iterator[Indices]:
        for indices, batch_size in work:
            sizes.append((bool(indices), batch_size))
            if indices:
                yield indices

    loader: DataLoader[Any] = DataLoader(
        dataset,
        batch_sampler=keys(),
        num_workers=loader_workers,
        # Other threads of this worker are idle while it forks, and a loader leaves the GPU alone;
        # a fresh interpreter would import torch again for every trial.
        multiprocessing_context="fork" if loader_workers else None,
        worker_init_fn=partial(_end_with_worker, os.getpid()) if loader_workers else None,
    )
    for batch in loader:
        while not sizes[0][0]:
            yield None, sizes.pop(0)[1]
        yield batch, sizes.pop(0)[1]
    for _, batch_size in sizes:
        yield None, batch_size


def _end_with_worker(worker_pid: int, _loader: int) -> None:
    """Let a loader end when its worker is killed; by itself it would look up every 5 s only."""
    end_with_parent(worker_pid)


def split_batch(batch: Any, parts: int) -> list[Any]:
    """Cut nested tensors along their first dimension, without copying.

    Returns:
        ``parts`` batches of the same nesting whose sizes differ by one sample at most.
    """
    if parts == 1:
        return [batch]
    if isinstance(batch, Tensor):
        return list(batch.tensor_split(parts))
    if isinstance(batch, dict):
        columns = {key: split_batch(value, parts) for key, value in batch.items()}
        return [{key: column[i] for key, column in columns.items()} for i in range(parts)]
    if isinstance(batch, (tuple, list)):
        rows = zip(*(split_batch(value, parts) for value in batch), strict=True)
        return [type(batch)(row) for row in rows]
    return [batch] * parts


def num_samples(batch: Any) -> int:
    """Count the samples of nested tensors: the size of the first tensor found."""
    if isinstance(batch, Tensor):
        return batch.size(0)
    values = batch.values() if isinstance(batch, dict) else batch
    return num_samples(next(iter(values)))


def move_batch(batch: Any, device: torch.device, memory_format: torch.memory_format) -> Any:
    """Bring nested tensors to a device; pictures (four dimensions) to a memory format too."""
    if isinstance(batch, Tensor):
        format_ = memory_format if batch.dim() == 4 else torch.preserve_format
        return batch.to(device, memory_format=format_, non_blocking=True)
    if isinstance(batch, dict):
        return {key: move_batch(value, device, memory_format) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        return type(batch)(move_batch(value, device, memory_format) for value in batch)
    return batch
