"""Ring all-reduce of buckets, several at once, without spinning.

Each of ``n`` ranks cuts a block into ``n`` segments. In ``n - 1`` hops each sends a segment to its
right neighbour and adds the one that it receives from the left: then each has the whole sum of one
segment. In ``n - 1`` more hops these reach all ranks. Every link carries ``2 (n - 1) / n`` of a
block each way, the least that any algorithm needs; every rank ends with the same bits.

Several blocks are in flight at once, each at a hop of its own, so that the link is never idle while
one is added or waited for. Blocking calls of MPI spin, and would take a core from the workers that
still compute: here requests are polled, and between two polls the rank sleeps.

Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
2009, https://doi.org/10.1016/j.jpdc.2008.09.002.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from mpi4py import MPI

from launch.gradient_sync.allreduce.bucket_sum import (
    BucketSum,
    FlatArray,
    PendingSum,
    as_mpi_buffer,
    segment_bounds,
)


class RingSum(BucketSum):
    """All-reduce of blocks in their own precision."""

    def __init__(self, comm: MPI.Comm, *, max_in_flight: int = 4) -> None:
        super().__init__(comm, max_in_flight=max_in_flight)
        self._spare_buffers: list[FlatArray] = []

    def _begin(self, block: FlatArray) -> PendingSum:
        hops = 2 * (self._comm.size - 1)
        return _PendingRingSum(self._comm, block, self._spare_buffers, self._reserve_tags(hops))


class _PendingRingSum(PendingSum):
    """One block in flight.

    Args:
        comm: Of the ranks.
        block: What is summed.
        spare_buffers: Receive buffers of finished sums; one is taken, and given back.
        tag: First of its tags.
    """

    def __init__(
        self, comm: MPI.Comm, block: FlatArray, spare_buffers: list[FlatArray], tag: int
    ) -> None:
        self.block = block
        self.sent_bytes = 0
        self._comm = comm
        bounds = segment_bounds(block.size, comm.size)
        self._segments = [block[low:high] for low, high in pairwise(bounds)]
        self._spare_buffers = spare_buffers
        self._receive_buffer = _take_buffer(
            max(segment.nbytes for segment in self._segments), spare_buffers
        )
        self._tag = tag
        self._hop = 0
        self._requests: list[MPI.Request] = []
        self._target: FlatArray = block
        self._incoming: FlatArray = block
        if comm.size > 1:
            self._start_hop()

    def advance(self) -> bool:
        hops = 2 * (self._comm.size - 1)
        while self._hop < hops and MPI.Request.Testall(self._requests):
            if self._is_adding:
                np.add(self._target, self._incoming, out=self._target)
            self._hop += 1
            if self._hop < hops:
                self._start_hop()
        is_done = self._hop == hops
        if is_done:
            self._spare_buffers.append(self._receive_buffer)
        return is_done

    @property
    def _is_adding(self) -> bool:
        return self._hop < self._comm.size - 1

    def _start_hop(self) -> None:
        size, rank = self._comm.size, self._comm.rank
        outgoing = self._segments[(rank - self._hop) % size]
        self._target = self._segments[(rank - self._hop - 1) % size]
        self._incoming = self._target
        if self._is_adding:
            self._incoming = self._receive_buffer[: self._target.nbytes].view(self._target.dtype)
        tag = self._tag + self._hop
        left, right = (rank - 1) % size, (rank + 1) % size
        self._requests = [
            self._comm.Irecv(as_mpi_buffer(self._incoming), left, tag),
            self._comm.Isend(as_mpi_buffer(outgoing), right, tag),
        ]
        self.sent_bytes += outgoing.nbytes


def _take_buffer(num_bytes: int, spare_buffers: list[FlatArray]) -> FlatArray:
    buffer = spare_buffers.pop() if spare_buffers else np.empty(0, np.uint8)
    return buffer if buffer.nbytes >= num_bytes else np.empty(num_bytes, np.uint8)
