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
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

Block = NDArray[Any]


class RingSum:
    """Adds up blocks over all ranks, in place.

    Collective: every rank makes one, and starts blocks of equal sizes in the same order.

    Args:
        comm: Of its own: no other message may cross these.
        most: Blocks under way at once.
    """

    def __init__(self, comm: MPI.Comm, *, most: int = 4) -> None:
        self._comm = comm
        self._most = most
        self._under_way: list[_Passage] = []
        self._room: list[Block] = []
        self._tags = Tags(comm)
        self.sent_bytes = 0
        """Sent by this rank so far."""

    @property
    def has_room(self) -> bool:
        """Whether another block may be started."""
        return len(self._under_way) < self._most

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._under_way

    def start(self, block: Block) -> None:
        """Start to add up a one-dimensional block. It must not be touched until it is done."""
        room = self._room.pop() if self._room else np.empty(0, np.uint8)
        need = -(-block.size // self._comm.size) * block.itemsize
        if room.nbytes < need:
            room = np.empty(need, np.uint8)
        turns = 2 * (self._comm.size - 1)
        passage = _Passage(self._comm, block, room, self._tags.take(turns))
        self._under_way.append(passage)
        self.sent_bytes += passage.begin()

    def finished(self) -> list[Block]:
        """Let everything go on that can; give the blocks that are done, without waiting."""
        done = []
        for passage in list(self._under_way):
            sent = passage.go_on()
            self.sent_bytes += sent
            if passage.is_done:
                self._under_way.remove(passage)
                self._room.append(passage.room)
                done.append(passage.block)
        return done


class Tags:
    """Numbers of messages, which begin anew where MPI has no higher ones."""

    def __init__(self, comm: MPI.Comm) -> None:
        self._highest = int(comm.Get_attr(MPI.TAG_UB) or 0)
        self._next = 0

    def take(self, count: int) -> int:
        """Give the first of so many numbers in a row."""
        if self._next + count > self._highest:
            self._next = 0
        first, self._next = self._next, self._next + count
        return first


class _Passage:
    """One block on its way round."""

    def __init__(self, comm: MPI.Comm, block: Block, room: Block, tag: int) -> None:
        self.block = block
        self.room = room
        self.is_done = comm.size == 1
        self._comm = comm
        bounds = segment_bounds(block.size, comm.size)
        self._segments = [block[low:high] for low, high in pairwise(bounds)]
        self._tag = tag
        self._turn = 0
        self._requests: list[MPI.Request] = []
        self._target: Block = block
        self._arriving: Block = block

    def begin(self) -> int:
        """Take the first turn; give the bytes that it sends."""
        return 0 if self.is_done else self._take_turn()

    def go_on(self) -> int:
        """Take as many turns as can be taken; give the bytes that they send."""
        sent = 0
        while not self.is_done and MPI.Request.Testall(self._requests):
            if self._is_adding:
                np.add(self._target, self._arriving, out=self._target)
            self._turn += 1
            if self._turn == 2 * (self._comm.size - 1):
                self.is_done = True
            else:
                sent += self._take_turn()
        return sent

    @property
    def _is_adding(self) -> bool:
        return self._turn < self._comm.size - 1

    def _take_turn(self) -> int:
        size, rank = self._comm.size, self._comm.rank
        outgoing = self._segments[(rank - self._turn) % size]
        self._target = self._segments[(rank - self._turn - 1) % size]
        self._arriving = self._target
        if self._is_adding:
            self._arriving = self.room[: self._target.nbytes].view(self._target.dtype)
        tag = self._tag + self._turn
        left, right = (rank - 1) % size, (rank + 1) % size
        self._requests = [
            self._comm.Irecv(as_bytes(self._arriving), left, tag),
            self._comm.Isend(as_bytes(outgoing), right, tag),
        ]
        return outgoing.nbytes


def as_bytes(block: Block) -> list[Any]:
    """Describe contiguous memory to MPI, whatever type it holds."""
    return [block.view(np.uint8), block.nbytes, MPI.BYTE]


def segment_bounds(size: int, count: int) -> list[int]:
    """List where the segments of a block begin, and its end."""
    return [size * part // count for part in range(count + 1)]
