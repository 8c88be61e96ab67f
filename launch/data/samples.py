"""Samples that a worker reads at each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, pairwise

import torch

from launch.data.split import Indices, NodeSplit, Share, Work


@dataclass(frozen=True, slots=True)
class Part:
    """One of the equal parts that each node batch is cut into."""

    index: int
    count: int

    def size_of(self, batch_size: int) -> int:
        """Give the number of samples of this part of a batch."""
        return len(split_evenly(range(batch_size), self.count)[self.index])


def split_evenly(batch: Sequence[int], parts: int) -> list[Indices]:
    """Cut a batch into ``parts`` shares whose sizes differ by one sample at most.

    The small rest at the end of an epoch goes to fewer workers, at least two samples each while
    there are so many: layers that normalise over a batch refuse a single one.
    """
    used = count_usable_parts(len(batch), parts)
    bounds = [len(batch) * part // used for part in range(used + 1)]
    return [list(batch[low:high]) for low, high in pairwise(bounds)] + [[]] * (parts - used)


def count_usable_parts(num_samples: int, parts: int) -> int:
    """Give the number of parts, ``parts`` at most, that get two samples each, or one part."""
    return max(1, min(parts, num_samples // 2))


def count_equal_parts(num_samples: int, at_most: int) -> int:
    """Give the largest number of parts, ``at_most`` of them, that are all of one size.

    Two samples each while there are so many, as in `count_usable_parts`.
    """
    most = count_usable_parts(num_samples, at_most)
    return next(parts for parts in range(most, 0, -1) if num_samples % parts == 0)


def _epoch_order(num_samples: int, *, seed: int, epoch: int) -> Indices:
    """Shuffle one epoch.

    The order depends on ``seed`` and ``epoch`` alone, so any number of workers on any number of
    nodes, each for itself, find the same one.
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order: Indices = torch.randperm(num_samples, generator=generator).tolist()
    return order


def epoch_batches(num_samples: int, batch: int, *, seed: int, epoch: int) -> list[Indices]:
    """Shuffle one epoch and cut it into batches; every sample is in exactly one."""
    order = _epoch_order(num_samples, seed=seed, epoch=epoch)
    return [order[low : low + batch] for low in range(0, num_samples, batch)]


class ShareSampler:
    """Sampler of one worker's share of every global batch.

    Args:
        num_samples: Samples in the data set.
        split: Which slice of each global batch is this node's.
        part: The part of that slice that this worker reads.
        seed: Order of the samples.
    """

    def __init__(self, num_samples: int, split: NodeSplit, *, part: Part, seed: int) -> None:
        self._num_samples = num_samples
        self.split = split
        self._part = part
        self._seed = seed

    def epoch(self, epoch: int, position: int = 0) -> list[Share]:
        """Give the share and the size of each batch of one epoch, from a position on.

        Args:
            epoch: From 0.
            position: Samples of the epoch that all nodes together have seen already.
        """
        order = _epoch_order(self._num_samples, seed=self._seed, epoch=epoch)
        step = self.split.global_batch
        return [
            self._share(order[low : low + step]) for low in range(position, self._num_samples, step)
        ]

    def draw_subset(self, limit: int | None) -> Indices:
        """Draw ``limit`` different samples; all, in their order, where there are no more.

        Every worker draws the same.
        """
        if limit is None or limit >= self._num_samples:
            return list(range(self._num_samples))
        return epoch_batches(self._num_samples, limit, seed=self._seed, epoch=0)[0]

    def endless(self, samples: Indices) -> Work:
        """Give full batches only, for ever: all steps of a trial do equal work.

        Samples fewer than one batch are repeated to fill it.

        Args:
            samples: Which to take, of all there are; see `draw_subset`.
        """
        waiting: Indices = []
        step = self.split.global_batch
        for epoch in count():
            for batch in epoch_batches(len(samples), step, seed=self._seed, epoch=epoch):
                waiting += [samples[i] for i in batch]
                if len(waiting) >= step:
                    full, waiting = waiting[:step], waiting[step:]
                    yield self._share(full)

    def _share(self, batch: Indices) -> Share:
        mine, size = self.split.of(batch)
        return split_evenly(mine, self._part.count)[self._part.index], size
