"""Base of the all-reduce of buckets, several in flight at once."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from launch.gradient_sync.allreduce.backoff import PollBackoff
from launch.gradient_sync.wire_formats._base import Floats

FlatArray = NDArray[Any]


class PendingSum(ABC):
    """One all-reduce in flight.

    Attributes:
        block: One-dimensional; holds the sum in the end.
        sent_bytes: Sent by this rank so far.
    """

    block: FlatArray
    sent_bytes: int

    @abstractmethod
    def advance(self) -> bool:
        """Advance without waiting; return whether the block is summed."""


class BucketSum(ABC):
    """Sums blocks of numbers over all ranks, in place.

    Collective: every rank makes one, and starts blocks of equal sizes in the same order.

    Args:
        comm: For these sums alone: other messages would be taken for theirs.
    """

    max_in_flight = 4
    """Most blocks that are summed at once."""

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm = comm
        self._in_flight: list[PendingSum] = []
        # Of the world, which alone has to have it: a communicator that was split from it has none
        # (https://github.com/open-mpi/ompi/issues/11970).
        self._highest_tag = int(MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 0)
        self._tag = 0
        self._sent_bytes = 0

    @property
    def sent_bytes(self) -> int:
        """Bytes that this rank has sent so far."""
        return self._sent_bytes + sum(pending.sent_bytes for pending in self._in_flight)

    @property
    def has_capacity(self) -> bool:
        """Whether another block may be started."""
        return len(self._in_flight) < self.max_in_flight

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight."""
        return not self._in_flight

    def start(self, block: FlatArray, errors: Floats | None = None) -> None:
        """Start to sum a one-dimensional block. It must not be touched until it is finished.

        Args:
            block: Of numbers.
            errors: One for each real number of it, where they are not sent as they are; see
                `launch.gradient_sync.wire_formats._base.WireFormat`.
        """
        self._in_flight.append(self._begin(block, errors))

    def take_finished(self) -> list[FlatArray]:
        """Advance all sums without waiting; return the blocks that are finished."""
        # Open MPI tells in a call of what earlier ones have read. So this one reads, before the
        # others ask; what it looks for, a message from this rank to itself, is sent by nobody.
        self._comm.Iprobe(self._comm.rank, self._highest_tag)
        done = [pending for pending in self._in_flight if pending.advance()]
        for pending in done:
            self._in_flight.remove(pending)
            self._sent_bytes += pending.sent_bytes
        return [pending.block for pending in done]

    def sum_all(
        self, blocks: Iterable[FlatArray], *, is_cancelled: Callable[[], bool] = lambda: False
    ) -> None:
        """Sum blocks, and wait for all of them.

        Args:
            blocks: Sent as they are: by an exact format.
            is_cancelled: Whether to leave without the sums.
        """
        waiting, backoff = deque(blocks), PollBackoff()
        while (waiting or not self.is_idle) and not is_cancelled():
            while waiting and self.has_capacity:
                self.start(waiting.popleft())
            before = self.sent_bytes
            has_progressed = bool(self.take_finished()) or self.sent_bytes > before
            backoff.record(has_progressed=has_progressed)
            if not has_progressed:
                time.sleep(backoff.pause_s)

    @abstractmethod
    def _begin(self, block: FlatArray, errors: Floats | None) -> PendingSum:
        """Start the sum of a block and send its first messages."""

    def _reserve_two_tags(self) -> int:
        """Give the first of two consecutive tags, which start from 0 again after MPI's last."""
        if self._tag + 2 > self._highest_tag:
            self._tag = 0
        first, self._tag = self._tag, self._tag + 2
        return first


def as_mpi_buffer(block: FlatArray) -> list[Any]:
    """Describe contiguous memory to MPI, whatever type it holds."""
    return [block.view(np.uint8), block.nbytes, MPI.BYTE]


def segment_bounds(size: int, count: int) -> list[int]:
    """List where the segments of a block begin, and its end."""
    return [size * part // count for part in range(count + 1)]
