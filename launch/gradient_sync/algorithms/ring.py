"""Ring: each rank sends to its right neighbour alone, and every link carries the least bytes.

Each of ``n`` ranks cuts a block into ``n`` segments. In ``n - 1`` hops each sends a segment to its
right neighbour and adds the one that it receives from the left: then each has the whole sum of one
segment. In ``n - 1`` more hops these reach all ranks. Every link carries ``2 (n - 1) / n`` of a
block each way, the least that any algorithm needs.

Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
2009, https://doi.org/10.1016/j.jpdc.2008.09.002.
"""

from __future__ import annotations

from launch.gradient_sync.algorithms._base import AllReduceAlgorithm, Exchange, Transfer


class Ring(AllReduceAlgorithm):
    """As many segments as ranks, which go around one after the other."""

    def segments(self, size: int) -> int:
        return size

    def exchanges(self, rank: int, size: int) -> list[Exchange]:
        left, right = (rank - 1) % size, (rank + 1) % size
        return [
            Exchange(
                is_total=hop >= size - 1,
                sends=[Transfer(right, (rank - hop) % size)],
                receives=[Transfer(left, (rank - hop - 1) % size)],
            )
            for hop in range(self.hops(size))
        ]

    def load(self, size: int) -> float:
        return 2 * (size - 1) / size

    def hops(self, size: int) -> int:
        return 2 * (size - 1)
