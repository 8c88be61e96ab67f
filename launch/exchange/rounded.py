"""How do nodes add up gradients in half the bytes? Rounded to bfloat16, the error carried over.

What rounding takes from a step's gradient is added to the next one's before that is rounded, so
that nothing is lost for good, only late. Each rank sums one segment of a block, from the rounded
segments of all, and sends that sum, rounded likewise with an error of its own carried over. All
ranks end with the same bits. The bytes are half of those of `launch.exchange.ring` for two ranks
and any other number.

Source: Tang et al., "DoubleSqueeze: Parallel Stochastic Gradient Descent with Double-pass
Error-Compensated Compression", 2019, https://arxiv.org/abs/1905.05957.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from launch.exchange.bfloat16 import Halves, from_bfloat16, to_bfloat16
from launch.exchange.ring import Tags, as_bytes, segment_bounds

Array = NDArray[Any]


class RoundedSum:
    """Adds up blocks over all ranks, in place, rounded on the way.

    Collective, and used as `launch.exchange.ring.RingSum` is; blocks must be started in the same
    order in every step, since each has errors to carry over. Blocks that are not float32 are
    converted.
    """

    def __init__(self, comm: MPI.Comm, *, most: int = 4) -> None:
        self._comm = comm
        self._most = most
        self._under_way: list[_Crossing] = []
        self._errors: dict[int, _Errors] = {}
        self._tags = Tags(comm)
        self.sent_bytes = 0

    @property
    def has_room(self) -> bool:
        """Whether another block may be started."""
        return len(self._under_way) < self._most

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._under_way

    def start(self, block: Array) -> None:
        """Start to add up a one-dimensional block. It must not be touched until it is done."""
        address = block.__array_interface__["data"][0]
        reals = block.view(block.real.dtype) if np.iscomplexobj(block) else block
        bounds = segment_bounds(reals.size, self._comm.size)
        own = bounds[self._comm.rank + 1] - bounds[self._comm.rank]
        errors = self._errors.setdefault(address, _Errors(reals.size, own))
        crossing = _Crossing(self._comm, block, reals, bounds, errors, self._tags.take(2))
        self._under_way.append(crossing)
        self.sent_bytes += crossing.sent_bytes

    def finished(self) -> list[Array]:
        """Let everything go on that can; give the blocks that are done, without waiting."""
        done = []
        for crossing in list(self._under_way):
            before = crossing.sent_bytes
            if crossing.go_on():
                self._under_way.remove(crossing)
                done.append(crossing.block)
            self.sent_bytes += crossing.sent_bytes - before
        return done


class _Errors:
    """What rounding has taken so far: from this rank's gradients, and from its segment's sums."""

    def __init__(self, size: int, own: int) -> None:
        self.of_block = np.zeros(size, np.float32)
        self.of_sum = np.zeros(own, np.float32)


class _Crossing:
    """One block on its way: first to whoever sums its segments, then back."""

    def __init__(
        self,
        comm: MPI.Comm,
        block: Array,
        reals: Array,
        bounds: list[int],
        errors: _Errors,
        tag: int,
    ) -> None:
        self.block = block
        self._reals = reals
        self.sent_bytes = 0
        self._comm = comm
        self._bounds = bounds
        self._errors = errors
        self._tag = tag
        self._is_back = False
        rounded = _round(reals.astype(np.float32), errors.of_block)
        self._sent = [rounded[low:high] for low, high in pairwise(bounds)]
        own = self._sent[comm.rank]
        self._received = [own if rank == comm.rank else np.empty_like(own) for rank in self._ranks]
        self._requests = self._exchange(self._received, self._sent, tag)

    def go_on(self) -> bool:
        """Go on as far as can be; tell whether the block is done."""
        if not MPI.Request.Testall(self._requests):
            return False
        if not self._is_back:
            self._return_sum()
            return False
        for (low, high), halves in zip(pairwise(self._bounds), self._received, strict=True):
            self._reals[low:high] = from_bfloat16(halves)
        return True

    @property
    def _ranks(self) -> range:
        return range(self._comm.size)

    def _return_sum(self) -> None:
        total = from_bfloat16(self._received[0])
        for halves in self._received[1:]:
            total += from_bfloat16(halves)
        rounded = _round(total, self._errors.of_sum)
        self._is_back = True
        self._received = [
            rounded if rank == self._comm.rank else np.empty(high - low, np.uint16)
            for rank, (low, high) in enumerate(pairwise(self._bounds))
        ]
        self._sent = [rounded] * self._comm.size
        self._requests = self._exchange(self._received, self._sent, self._tag + 1)

    def _exchange(self, received: list[Halves], sent: list[Halves], tag: int) -> list[MPI.Request]:
        requests = []
        for rank in self._ranks:
            if rank != self._comm.rank:
                requests.append(self._comm.Irecv(as_bytes(received[rank]), rank, tag))
                requests.append(self._comm.Isend(as_bytes(sent[rank]), rank, tag))
                self.sent_bytes += sent[rank].nbytes
        return requests


def _round(values: Array, error: Array) -> Halves:
    """Round what is to be sent, with what was kept back before; keep back the rest."""
    values += error
    halves = to_bfloat16(values)
    np.subtract(values, from_bfloat16(halves), out=error)
    # A gradient that is not finite would spoil all that follow.
    error[~np.isfinite(error)] = 0.0
    return halves
