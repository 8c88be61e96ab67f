"""What do all ways of adding up blocks over the ranks have in common? Several under way at once."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from launch.exchange.looks import Looks

Block = NDArray[Any]


class Passage(ABC):
    """One block on its way to its sum.

    Attributes:
        block: One-dimensional; holds the sum in the end.
        sent_bytes: Sent by this rank so far.
    """

    block: Block
    sent_bytes: int

    @abstractmethod
    def go_on(self) -> bool:
        """Go on as far as can be without waiting; tell whether the block is done."""


class BlockSum(ABC):
    """Adds up blocks over all ranks, in place.

    Collective: every rank makes one, and starts blocks of equal sizes in the same order.

    Args:
        comm: Of its own: no other message may cross these.
        most: Blocks under way at once.

    Attributes:
        most: Likewise.
    """

    def __init__(self, comm: MPI.Comm, *, most: int = 4) -> None:
        self._comm = comm
        self.most = most
        self._under_way: list[Passage] = []
        self._highest_tag = int(comm.Get_attr(MPI.TAG_UB) or 0)
        self._tag = 0
        self._sent_bytes = 0

    @property
    def sent_bytes(self) -> int:
        """Sent by this rank so far."""
        return self._sent_bytes + sum(passage.sent_bytes for passage in self._under_way)

    @property
    def has_room(self) -> bool:
        """Whether another block may be started."""
        return len(self._under_way) < self.most

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._under_way

    def start(self, block: Block) -> None:
        """Start to add up a one-dimensional block. It must not be touched until it is done."""
        self._under_way.append(self._begin(block))

    def finished(self) -> list[Block]:
        """Let everything go on that can; give the blocks that are done, without waiting."""
        done = [passage for passage in self._under_way if passage.go_on()]
        for passage in done:
            self._under_way.remove(passage)
            self._sent_bytes += passage.sent_bytes
        return [passage.block for passage in done]

    def add_up(self, blocks: Iterable[Block]) -> None:
        """Add up some blocks, and wait for them all."""
        waiting, looks = deque(blocks), Looks()
        while waiting or not self.is_idle:
            while waiting and self.has_room:
                self.start(waiting.popleft())
            before = self.sent_bytes
            has_moved = bool(self.finished()) or self.sent_bytes > before
            looks.note(has_moved=has_moved)
            if not has_moved:
                time.sleep(looks.pause_s)

    @abstractmethod
    def _begin(self, block: Block) -> Passage:
        """Send what can be sent at once."""

    def _take_tags(self, count: int) -> int:
        """Give the first of so many numbers of messages, which begin anew where MPI has no more."""
        if self._tag + count > self._highest_tag:
            self._tag = 0
        first, self._tag = self._tag, self._tag + count
        return first


def as_bytes(block: Block) -> list[Any]:
    """Describe contiguous memory to MPI, whatever type it holds."""
    return [block.view(np.uint8), block.nbytes, MPI.BYTE]


def segment_bounds(size: int, count: int) -> list[int]:
    """List where the segments of a block begin, and its end."""
    return [size * part // count for part in range(count + 1)]
