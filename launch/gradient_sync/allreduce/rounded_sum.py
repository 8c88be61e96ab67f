"""All-reduce of gradients rounded to bfloat16, with error feedback.

What rounding takes from a step's gradient is added to the next one's before that is rounded
(error feedback), so that nothing is lost for good, only late. Each rank sums one segment of a
block, from the rounded segments of all, and sends that sum, rounded with an error feedback of its
own. All ranks end with the same bits. The bytes are half of those of
`launch.gradient_sync.allreduce.ring_sum` for two ranks and any other number.

The errors live as long as the rank: a training that is resumed begins without them. So does a
parameter after a step in which no node has a gradient for it: its error is sent with the zeros, and
is lost where its update is left out.

Source: Tang et al., "DoubleSqueeze: Parallel Stochastic Gradient Descent with Double-pass
Error-Compensated Compression", 2019, https://arxiv.org/abs/1905.05957.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from mpi4py import MPI

from launch.gradient_sync.allreduce.bfloat16 import Halves, from_bfloat16, to_bfloat16
from launch.gradient_sync.allreduce.bucket_sum import (
    BucketSum,
    FlatArray,
    PendingSum,
    as_mpi_buffer,
    segment_bounds,
)

_TILE = 2**16
"""Numbers that are rounded at a time, so that they stay in the cache."""


class RoundedSum(BucketSum):
    """All-reduce of blocks that are rounded before they are sent.

    A block is identified by its address, since each has its own error feedback. Those that are not
    float32 are converted.
    """

    def __init__(self, comm: MPI.Comm, *, max_in_flight: int = 4) -> None:
        super().__init__(comm, max_in_flight=max_in_flight)
        self._errors: dict[int, _RoundingErrors] = {}

    def _begin(self, block: FlatArray) -> PendingSum:
        address = block.__array_interface__["data"][0]
        reals = block.view(block.real.dtype) if np.iscomplexobj(block) else block
        bounds = segment_bounds(reals.size, self._comm.size)
        if address not in self._errors:
            own = bounds[self._comm.rank + 1] - bounds[self._comm.rank]
            self._errors[address] = _RoundingErrors(reals.size, own)
        tag = self._reserve_tags(2)
        return _PendingRoundedSum(self._comm, block, reals, bounds, self._errors[address], tag)


class _RoundingErrors:
    """Errors of the last rounding: of this rank's gradients, and of its segment's sum."""

    def __init__(self, size: int, own: int) -> None:
        self.of_gradients = np.zeros(size, np.float32)
        self.of_sum = np.zeros(own, np.float32)


class _PendingRoundedSum(PendingSum):
    """One block in flight: its segments to the ranks that sum them, then the sums to all."""

    def __init__(
        self,
        comm: MPI.Comm,
        block: FlatArray,
        reals: FlatArray,
        bounds: list[int],
        errors: _RoundingErrors,
        tag: int,
    ) -> None:
        self.block = block
        self._reals = reals
        self.sent_bytes = 0
        self._comm = comm
        self._bounds = bounds
        self._errors = errors
        self._tag = tag
        self._is_returning = False
        rounded = _round_with_feedback(reals, errors.of_gradients)
        self._sent = [rounded[low:high] for low, high in pairwise(bounds)]
        own = self._sent[comm.rank]
        self._received = [own if rank == comm.rank else np.empty_like(own) for rank in self._ranks]
        self._requests = self._start_transfers(self._received, self._sent, tag)

    def advance(self) -> bool:
        if not MPI.Request.Testall(self._requests):
            return False
        if not self._is_returning:
            self._start_return()
            return False
        for (low, high), halves in zip(pairwise(self._bounds), self._received, strict=True):
            _unpack(halves, self._reals[low:high])
        return True

    @property
    def _ranks(self) -> range:
        return range(self._comm.size)

    def _start_return(self) -> None:
        total = np.zeros(self._received[0].size, np.float32)
        for halves in self._received:
            _accumulate(halves, total)
        rounded = _round_with_feedback(total, self._errors.of_sum)
        self._is_returning = True
        self._received = [
            rounded if rank == self._comm.rank else np.empty(high - low, np.uint16)
            for rank, (low, high) in enumerate(pairwise(self._bounds))
        ]
        self._sent = [rounded] * self._comm.size
        self._requests = self._start_transfers(self._received, self._sent, self._tag + 1)

    def _start_transfers(
        self, received: list[Halves], sent: list[Halves], tag: int
    ) -> list[MPI.Request]:
        requests = []
        for rank in self._ranks:
            if rank != self._comm.rank:
                requests.append(self._comm.Irecv(as_mpi_buffer(received[rank]), rank, tag))
                requests.append(self._comm.Isend(as_mpi_buffer(sent[rank]), rank, tag))
                self.sent_bytes += sent[rank].nbytes
        return requests


def _round_with_feedback(values: FlatArray, error: FlatArray) -> Halves:
    """Round values plus their last error; leave the new error.

    In tiles: all the passes over one find it in the cache.
    """
    halves = np.empty(values.size, np.uint16)
    for low in range(0, values.size, _TILE):
        tile = slice(low, low + _TILE)
        wanted = values[tile].astype(np.float32) + error[tile]
        halves[tile] = to_bfloat16(wanted)
        rest = wanted - from_bfloat16(halves[tile])
        # A gradient that is not finite would spoil all later ones.
        rest[~np.isfinite(rest)] = 0.0
        error[tile] = rest
    return halves


def _accumulate(halves: Halves, total: FlatArray) -> None:
    for low in range(0, total.size, _TILE):
        total[low : low + _TILE] += from_bfloat16(halves[low : low + _TILE])


def _unpack(halves: Halves, floats: FlatArray) -> None:
    for low in range(0, floats.size, _TILE):
        floats[low : low + _TILE] = from_bfloat16(halves[low : low + _TILE])
