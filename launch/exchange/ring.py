"""How do nodes add up a block of numbers? Round a ring, several blocks at once, without spinning.

Each of ``n`` ranks cuts a block into ``n`` segments. In ``n - 1`` turns each passes a segment on to
its right neighbour and adds the one that comes from the left: then each has one segment's whole
sum. In ``n - 1`` more turns these go round. Every link carries ``2 (n - 1) / n`` of a block each
way, which is the least that any way of adding needs; every rank ends with the same bits.

Several blocks are under way at once, each at a turn of its own, so that the link is never idle
while one is added or waited for. Blocking calls of MPI spin, and would take a core from the
workers that still compute: here requests are looked at, and between two looks the rank sleeps.

Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
2009, https://doi.org/10.1016/j.jpdc.2008.09.002.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from mpi4py import MPI

from launch.exchange.block_sum import Block, BlockSum, Passage, as_bytes, segment_bounds


class RingSum(BlockSum):
    """Adds up blocks exactly as they are."""

    def __init__(self, comm: MPI.Comm, *, most: int = 4) -> None:
        super().__init__(comm, most=most)
        self._rooms: list[Block] = []

    def _begin(self, block: Block) -> Passage:
        turns = 2 * (self._comm.size - 1)
        return _RingPassage(self._comm, block, self._rooms, self._take_tags(turns))


class _RingPassage(Passage):
    """One block on its way round.

    Args:
        comm: Of the ranks.
        block: What is added up.
        rooms: Memory for what arrives, of passages that are done; one is taken, and given back.
        tag: First of the numbers of its messages.
    """

    def __init__(self, comm: MPI.Comm, block: Block, rooms: list[Block], tag: int) -> None:
        self.block = block
        self.sent_bytes = 0
        self._comm = comm
        bounds = segment_bounds(block.size, comm.size)
        self._segments = [block[low:high] for low, high in pairwise(bounds)]
        self._rooms = rooms
        self._room = _room_for(max(segment.nbytes for segment in self._segments), rooms)
        self._tag = tag
        self._turn = 0
        self._requests: list[MPI.Request] = []
        self._target: Block = block
        self._arriving: Block = block
        if comm.size > 1:
            self._take_turn()

    def go_on(self) -> bool:
        turns = 2 * (self._comm.size - 1)
        while self._turn < turns and MPI.Request.Testall(self._requests):
            if self._is_adding:
                np.add(self._target, self._arriving, out=self._target)
            self._turn += 1
            if self._turn < turns:
                self._take_turn()
        is_done = self._turn == turns
        if is_done:
            self._rooms.append(self._room)
        return is_done

    @property
    def _is_adding(self) -> bool:
        return self._turn < self._comm.size - 1

    def _take_turn(self) -> None:
        size, rank = self._comm.size, self._comm.rank
        outgoing = self._segments[(rank - self._turn) % size]
        self._target = self._segments[(rank - self._turn - 1) % size]
        self._arriving = self._target
        if self._is_adding:
            self._arriving = self._room[: self._target.nbytes].view(self._target.dtype)
        tag = self._tag + self._turn
        left, right = (rank - 1) % size, (rank + 1) % size
        self._requests = [
            self._comm.Irecv(as_bytes(self._arriving), left, tag),
            self._comm.Isend(as_bytes(outgoing), right, tag),
        ]
        self.sent_bytes += outgoing.nbytes


def _room_for(num_bytes: int, rooms: list[Block]) -> Block:
    room = rooms.pop() if rooms else np.empty(0, np.uint8)
    return room if room.nbytes >= num_bytes else np.empty(num_bytes, np.uint8)
