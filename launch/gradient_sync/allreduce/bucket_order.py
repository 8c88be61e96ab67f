"""Order in which all nodes sum their buckets: of those ready on all, the latest first.

A backward pass gives the gradients of the first layers last, and the next forward pass needs them
first. So of the buckets that every node has ready, the latest goes first: what waits longest is
what is needed last. No node can know alone what the others have ready. They report it to rank 0,
which sends the number of the next bucket.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

_READY, _NEXT = 1, 2
"""Tags of the messages to rank 0, and of its own."""


class BucketOrder(ABC):
    """The order in which one rank starts the buckets of its steps."""

    @abstractmethod
    def begin(self) -> None:
        """Begin with the buckets of another step."""

    @abstractmethod
    def close(self) -> None:
        """Expect no more messages."""

    @abstractmethod
    def next(self, ready: int, *, has_capacity: bool) -> int | None:
        """Give the number of the bucket to start now, without waiting; ``None`` for none yet.

        Args:
            ready: Number of buckets that are ready here, the first ones of a backward pass.
            has_capacity: Whether another bucket may be started; the result is ``None`` otherwise.
        """


class FixedOrder(BucketOrder):
    """The order of a backward pass: for few buckets, which are all in flight at once."""

    def __init__(self) -> None:
        self._next = 0

    def begin(self) -> None:
        self._next = 0

    def close(self) -> None:
        return

    def next(self, ready: int, *, has_capacity: bool) -> int | None:
        if not has_capacity or self._next == ready:
            return None
        self._next += 1
        return self._next - 1


def agree_on_order(comm: MPI.Comm, buckets: int) -> BucketOrder:
    """Make the order of many buckets. Collective: every rank makes one, over equal buckets."""
    own = comm.Dup()  # so that its messages are not taken for others
    return _Leader(own, buckets) if own.rank == 0 else _Follower(own, buckets)


class _Leader(BucketOrder):
    """Rank 0: knows which buckets all ranks have ready."""

    def __init__(self, comm: MPI.Comm, buckets: int) -> None:
        self._buckets = buckets
        self._step = -1
        self._queue: list[int] = []
        others = range(1, comm.size)
        self._ready_receivers = [_CountReceiver(comm, rank, _READY) for rank in others]
        self._next_senders = [_CountSender(comm, rank, _NEXT) for rank in others]
        self._ready_of_ranks = [0] * len(others)
        self._queued = 0

    def begin(self) -> None:
        self._step += 1
        self._queued = 0

    def close(self) -> None:
        for report in self._ready_receivers:
            report.close()

    def next(self, ready: int, *, has_capacity: bool) -> int | None:
        for number, report in enumerate(self._ready_receivers):
            while (received := report.read()) is not None:
                self._ready_of_ranks[number] = received
        everywhere = min(
            [ready, *(received - self._step * self._buckets for received in self._ready_of_ranks)]
        )
        self._queue += range(self._queued, everywhere)
        self._queued = max(self._queued, everywhere)
        if not (has_capacity and self._queue):
            return None
        chosen = self._queue.pop()
        for sender in self._next_senders:
            sender.send(chosen)
        return chosen


class _Follower(BucketOrder):
    """Another rank: sends how many it has ready, and receives which comes next."""

    def __init__(self, comm: MPI.Comm, buckets: int) -> None:
        self._buckets = buckets
        self._step = -1
        self._sent_ready = 0
        self._next_receiver = _CountReceiver(comm, 0, _NEXT)
        self._ready_sender = _CountSender(comm, 0, _READY)
        self._queue: deque[int] = deque()

    def begin(self) -> None:
        self._step += 1

    def close(self) -> None:
        self._next_receiver.close()

    def next(self, ready: int, *, has_capacity: bool) -> int | None:
        # Counted over all steps: rank 0 may still be busy with the step before.
        if (count := self._step * self._buckets + ready) > self._sent_ready:
            self._sent_ready = count
            self._ready_sender.send(count)
        while (received := self._next_receiver.read()) is not None:
            self._queue.append(received)
        return self._queue.popleft() if has_capacity and self._queue else None


class _CountReceiver:
    """Receives numbers from one other rank."""

    def __init__(self, comm: MPI.Comm, rank: int, tag: int) -> None:
        self._comm, self._rank, self._tag = comm, rank, tag
        self._number = np.zeros(1, np.int64)
        self._request = self._post_receive()

    def read(self) -> int | None:
        """Give the next number that has arrived, ``None`` if there is none."""
        if not self._request.Test():
            return None
        number = int(self._number[0])
        self._request = self._post_receive()
        return number

    def close(self) -> None:
        """Cancel the pending receive, which could write into freed memory."""
        self._request.Cancel()
        self._request.Free()

    def _post_receive(self) -> MPI.Request:
        return self._comm.Irecv([self._number, 1, MPI.INT64_T], self._rank, self._tag)


class _CountSender:
    """Sends numbers to one other rank."""

    def __init__(self, comm: MPI.Comm, rank: int, tag: int) -> None:
        self._comm, self._rank, self._tag = comm, rank, tag
        self._in_flight: deque[tuple[MPI.Request, NDArray[Any]]] = deque()

    def send(self, number: int) -> None:
        """Send a number, without waiting."""
        while self._in_flight and self._in_flight[0][0].Test():
            self._in_flight.popleft()
        content = np.array([number], np.int64)
        request = self._comm.Isend([content, 1, MPI.INT64_T], self._rank, self._tag)
        self._in_flight.append((request, content))
