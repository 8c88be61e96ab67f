"""How do nodes add up gradients in half the bytes? Rounded to bfloat16, the error carried over.

What rounding takes from a step's gradient is added to the next one's before that is rounded, so
that nothing is lost for good, only late. Each rank sums one segment of a block, from the rounded
segments of all, and sends that sum, rounded likewise with an error of its own carried over. All
ranks end with the same bits. The bytes are half of those of `launch.exchange.ring` for two ranks
and any other number.

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

from launch.exchange.bfloat16 import Halves, from_bfloat16, to_bfloat16
from launch.exchange.block_sum import Block, BlockSum, Passage, as_bytes, segment_bounds

_TILE = 2**16
"""Numbers that are rounded at a time."""


class RoundedSum(BlockSum):
    """Adds up blocks that are rounded on the way.

    A block is known by its memory, since each has errors to carry over. Those that are not float32
    are converted.
    """

    def __init__(self, comm: MPI.Comm, *, most: int = 4) -> None:
        super().__init__(comm, most=most)
        self._errors: dict[int, _Errors] = {}

    def _begin(self, block: Block) -> Passage:
        address = block.__array_interface__["data"][0]
        reals = block.view(block.real.dtype) if np.iscomplexobj(block) else block
        bounds = segment_bounds(reals.size, self._comm.size)
        if address not in self._errors:
            own = bounds[self._comm.rank + 1] - bounds[self._comm.rank]
            self._errors[address] = _Errors(reals.size, own)
        tag = self._take_tags(2)
        return _Crossing(self._comm, block, reals, bounds, self._errors[address], tag)


class _Errors:
    """What rounding has taken so far: from this rank's gradients, and from its segment's sums."""

    def __init__(self, size: int, own: int) -> None:
        self.of_block = np.zeros(size, np.float32)
        self.of_sum = np.zeros(own, np.float32)


class _Crossing(Passage):
    """One block on its way: first to whoever sums its segments, then back."""

    def __init__(
        self,
        comm: MPI.Comm,
        block: Block,
        reals: Block,
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
        rounded = _round(reals, errors.of_block)
        self._sent = [rounded[low:high] for low, high in pairwise(bounds)]
        own = self._sent[comm.rank]
        self._received = [own if rank == comm.rank else np.empty_like(own) for rank in self._ranks]
        self._requests = self._exchange(self._received, self._sent, tag)

    def go_on(self) -> bool:
        if not MPI.Request.Testall(self._requests):
            return False
        if not self._is_back:
            self._return_sum()
            return False
        for (low, high), halves in zip(pairwise(self._bounds), self._received, strict=True):
            _spread(halves, self._reals[low:high])
        return True

    @property
    def _ranks(self) -> range:
        return range(self._comm.size)

    def _return_sum(self) -> None:
        total = np.zeros(self._received[0].size, np.float32)
        for halves in self._received:
            _add(halves, total)
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


def _round(values: Block, error: Block) -> Halves:
    """Round what is to be sent, with what was kept back before; keep back the rest.

    In tiles: all the passes over one find it in the cache.
    """
    halves = np.empty(values.size, np.uint16)
    for low in range(0, values.size, _TILE):
        tile = slice(low, low + _TILE)
        wanted = values[tile].astype(np.float32) + error[tile]
        halves[tile] = to_bfloat16(wanted)
        rest = wanted - from_bfloat16(halves[tile])
        # A gradient that is not finite would spoil all that follow.
        rest[~np.isfinite(rest)] = 0.0
        error[tile] = rest
    return halves


def _add(halves: Halves, total: Block) -> None:
    for low in range(0, total.size, _TILE):
        total[low : low + _TILE] += from_bfloat16(halves[low : low + _TILE])


def _spread(halves: Halves, floats: Block) -> None:
    for low in range(0, floats.size, _TILE):
        floats[low : low + _TILE] = from_bfloat16(halves[low : low + _TILE])
