"""Which samples does a worker read at which step?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, pairwise

import torch

Indices = list[int]


@dataclass(frozen=True, slots=True)
class Part:
    """One of the equal parts that each node batch is cut into."""

    index: int
    count: int

    def size_of(self, batch_size: int) -> int:
        """Give the number of samples of this part of a batch."""
        return len(shares(range(batch_size), self.count)[self.index])


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


def equal_parts(num_samples: int, at_most: int) -> int:
    """Give the largest number of parts, ``at_most`` of them, that are all of one size.

    Two samples each while there are so many, as in `usable_parts`.
    """
    most = usable_parts(num_samples, at_most)
    return next(parts for parts in range(most, 0, -1) if num_samples % parts == 0)


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
        part: What this worker reads of each batch.
        seed: Order of the samples.
    """

    def __init__(self, num_samples: int, node_batch: int, *, part: Part, seed: int) -> None:
        self._num_samples = num_samples
        self._node_batch = node_batch
        self._part = part
        self._seed = seed

    def epoch(self, epoch: int) -> list[tuple[Indices, int]]:
        """Give the share and the size of each batch of one epoch."""
        batches = epoch_batches(self._num_samples, self._node_batch, seed=self._seed, epoch=epoch)
        return [(self._share(batch), len(batch)) for batch in batches]

    def some(self, limit: int | None) -> Indices:
        """Draw ``limit`` different samples; all, in their order, where there are no more.

        Every worker draws the same.
        """
        if limit is None or limit >= self._num_samples:
            return list(range(self._num_samples))
        return epoch_batches(self._num_samples, limit, seed=self._seed, epoch=0)[0]

    def endless(self, samples: Indices) -> Iterator[tuple[Indices, int]]:
        """Give full batches only, for ever: all steps of a trial do equal work.

        Samples fewer than one batch are gone through several times to fill it.

        Args:
            samples: Which to take, of all there are; see `some`.
        """
        waiting: Indices = []
        for epoch in count():
            for batch in epoch_batches(
                len(samples), self._node_batch, seed=self._seed, epoch=epoch
            ):
                waiting += [samples[i] for i in batch]
                if len(waiting) >= self._node_batch:
                    full, waiting = waiting[: self._node_batch], waiting[self._node_batch :]
                    yield self._share(full), self._node_batch

    def _share(self, batch: Indices) -> Indices:
        return shares(batch, self._part.count)[self._part.index]
