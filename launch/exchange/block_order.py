"""Which block is summed next? All nodes must take the same one, and the first layers' are urgent.

A backward pass gives the gradients of the first layers last, and the next forward pass needs them
first. So of the blocks that every node has ready, the latest goes first: what waits longest is
what is needed last. No node can know alone what the others have ready. Rank 0 is told, and says
which block is next.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

_READY, _NEXT = 1, 2
"""Tags of what the others tell rank 0, and of what it tells them."""


class BlockOrder(ABC):
    """The order in which one rank starts the blocks of its steps."""

    @abstractmethod
    def begin(self) -> None:
        """Begin with the blocks of another step."""

    @abstractmethod
    def close(self) -> None:
        """Expect no more messages."""

    @abstractmethod
    def next(self, ready: int, *, has_room: bool) -> int | None:
        """Give the number of the block to start now, without waiting; ``None`` for none yet.

        Args:
            ready: So many blocks are ready here, the first ones in the order of a backward pass.
            has_room: Whether another block may be started; nothing is given otherwise.
        """


class FixedOrder(BlockOrder):
    """As a backward pass gives them: for few blocks, which are all under way at once."""

    def __init__(self) -> None:
        self._next = 0

    def begin(self) -> None:
        self._next = 0

    def close(self) -> None:
        return

    def next(self, ready: int, *, has_room: bool) -> int | None:
        if not has_room or self._next == ready:
            return None
        self._next += 1
        return self._next - 1


def agree_on_order(comm: MPI.Comm, blocks: int) -> BlockOrder:
    """Make the order of many blocks. Collective: every rank makes one, over equal blocks."""
    own = comm.Dup()  # whose messages cross no others
    return _Leader(own, blocks) if own.rank == 0 else _Follower(own, blocks)


class _Leader(BlockOrder):
    """Rank 0: knows what everybody has ready."""

    def __init__(self, comm: MPI.Comm, blocks: int) -> None:
        self._blocks = blocks
        self._step = -1
        self._waiting: list[int] = []
        others = range(1, comm.size)
        self._reports = [_Inbox(comm, rank, _READY) for rank in others]
        self._outboxes = [_Outbox(comm, rank, _NEXT) for rank in others]
        self._ready_of = [0] * len(others)
        self._offered = 0

    def begin(self) -> None:
        self._step += 1
        self._offered = 0

    def close(self) -> None:
        for report in self._reports:
            report.close()

    def next(self, ready: int, *, has_room: bool) -> int | None:
        for number, report in enumerate(self._reports):
            while (said := report.read()) is not None:
                self._ready_of[number] = said
        everywhere = min([ready, *(said - self._step * self._blocks for said in self._ready_of)])
        self._waiting += range(self._offered, everywhere)
        self._offered = max(self._offered, everywhere)
        if not (has_room and self._waiting):
            return None
        chosen = self._waiting.pop()
        for outbox in self._outboxes:
            outbox.send(chosen)
        return chosen


class _Follower(BlockOrder):
    """Another rank: tells what it has ready, and is told what comes next."""

    def __init__(self, comm: MPI.Comm, blocks: int) -> None:
        self._blocks = blocks
        self._step = -1
        self._told = 0
        self._orders = _Inbox(comm, 0, _NEXT)
        self._report = _Outbox(comm, 0, _READY)
        self._waiting: deque[int] = deque()

    def begin(self) -> None:
        self._step += 1

    def close(self) -> None:
        self._orders.close()

    def next(self, ready: int, *, has_room: bool) -> int | None:
        # Counted over all steps: rank 0 may still be busy with the step before.
        if (count := self._step * self._blocks + ready) > self._told:
            self._told = count
            self._report.send(count)
        while (said := self._orders.read()) is not None:
            self._waiting.append(said)
        return self._waiting.popleft() if has_room and self._waiting else None


class _Inbox:
    """Numbers from one other rank."""

    def __init__(self, comm: MPI.Comm, rank: int, tag: int) -> None:
        self._comm, self._rank, self._tag = comm, rank, tag
        self._number = np.zeros(1, np.int64)
        self._request = self._expect()

    def read(self) -> int | None:
        """Give the next number that has come."""
        if not self._request.Test():
            return None
        number = int(self._number[0])
        self._request = self._expect()
        return number

    def close(self) -> None:
        """Give the memory back that a message could come to."""
        self._request.Cancel()
        self._request.Free()

    def _expect(self) -> MPI.Request:
        return self._comm.Irecv([self._number, 1, MPI.INT64_T], self._rank, self._tag)


class _Outbox:
    """Numbers to one other rank."""

    def __init__(self, comm: MPI.Comm, rank: int, tag: int) -> None:
        self._comm, self._rank, self._tag = comm, rank, tag
        self._on_their_way: deque[tuple[MPI.Request, NDArray[Any]]] = deque()

    def send(self, number: int) -> None:
        """Send a number, without waiting."""
        while self._on_their_way and self._on_their_way[0][0].Test():
            self._on_their_way.popleft()
        content = np.array([number], np.int64)
        request = self._comm.Isend([content, 1, MPI.INT64_T], self._rank, self._tag)
        self._on_their_way.append((request, content))
