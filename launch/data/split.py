"""A node's samples of a step: its slice of the global batch. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

Indices = list[int]


@dataclass(frozen=True, slots=True)
class BatchSize:
    """Number of samples of one step."""

    node: int
    """On this node."""
    total: int
    """On all nodes: each sample's loss counts for ``1 / total``."""
    is_full: bool = True
    """Whether steps of these sizes come again; the last one of an epoch may be smaller."""


Share = tuple[Indices, BatchSize]
"""A worker's samples of one step, and how many all have."""

Work = Iterator[Share]
"""A worker's share of each step."""


@dataclass(frozen=True, slots=True)
class NodeSplit:
    """A node's slice of each global batch."""

    node_batches: tuple[int, ...]
    node: int

    @property
    def global_batch(self) -> int:
        """Samples per step over all nodes."""
        return sum(self.node_batches)

    def of(self, batch: Indices) -> Share:
        """Give this node's slice of a global batch, and its size.

        A smaller batch, at the end of an epoch, is cut in the same proportions; a node may then
        get nothing, and none gets a single sample where that can be avoided: layers that normalise
        over a batch refuse it.
        """
        is_full = len(batch) == self.global_batch
        sizes = self.node_batches if is_full else _in_proportion(len(batch), self.node_batches)
        low = sum(sizes[: self.node])
        mine = batch[low : low + sizes[self.node]]
        return mine, BatchSize(len(mine), len(batch), is_full=is_full)


def _in_proportion(num_samples: int, weights: Sequence[int]) -> tuple[int, ...]:
    total = sum(weights)
    bounds = [num_samples * high // total for high in accumulate(weights, initial=0)]
    sizes = [high - low for low, high in pairwise(bounds)]
    largest = max(range(len(sizes)), key=lambda node: (sizes[node], -node))
    for node, size in enumerate(sizes):
        if size == 1 and node != largest:
            sizes[largest], sizes[node] = sizes[largest] + 1, 0
    return tuple(sizes)
