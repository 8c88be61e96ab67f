"""How does a rank wait for the other nodes without looking all the time? By their connections.

Messages move only while MPI is called, and MPI has no call that sleeps until there is something to
move. But its connections are sockets of this process, and the system tells when one of them can be
read, or written to again: until then a look would find nothing.
"""

from __future__ import annotations

import os
import select
import socket
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path

_LONGEST_S = 0.05
"""Until the next look where no connection says anything."""

_MOST_MISSED = 8
"""Movements that no connection has told of, none between them that one has: then MPI goes another
way, such as InfiniBand, and no connection is asked any more."""

_INTERNET = (socket.AF_INET, socket.AF_INET6)


class _Woken(Enum):
    """Who has ended a sleep."""

    NOBODY = auto()
    WORKER = auto()
    CONNECTION = auto()


class Arrivals:
    """Sleeps until a message may have come, or may be sent on.

    Args:
        wakeup: Event descriptor by which workers end the sleep.
    """

    def __init__(self, wakeup: int) -> None:
        self._wakeup = wakeup
        self._connections: frozenset[int] = frozenset()
        self._woken = _Woken.WORKER
        self._missed = 0

    def note(self, *, has_moved: bool) -> None:
        """Take note of what a look has found. Of several after one sleep the first counts."""
        if not has_moved:
            return
        # What moves after a worker's word may be the worker's: it says nothing of connections.
        woken, self._woken = self._woken, _Woken.WORKER
        if woken is _Woken.CONNECTION:
            self._missed = 0
        elif woken is _Woken.NOBODY and self._missed < _MOST_MISSED:
            self._missed += 1
            is_blind = self._missed == _MOST_MISSED
            self._connections = frozenset() if is_blind else find_connections()

    def sleep(self, least_s: float) -> None:
        """Sleep for so long, and then on until a connection tells of something.

        Args:
            least_s: What arrives meanwhile is taken at once, which costs less than to be woken for
                each packet. A worker ends the sleep earlier.
        """
        if select.select([self._wakeup], [], [], least_s)[0]:
            self._woken = _Woken.WORKER
        else:
            self._woken = self._wait_for_connections() if self._connections else _Woken.NOBODY
        with suppress(BlockingIOError):
            os.eventfd_read(self._wakeup)

    def _wait_for_connections(self) -> _Woken:
        ready = {descriptor for descriptor, _ in self._poll(_LONGEST_S)}
        if ready - {self._wakeup}:
            return _Woken.CONNECTION
        return _Woken.WORKER if ready else _Woken.NOBODY

    def _poll(self, limit_s: float) -> list[tuple[int, int]]:
        """Wait for what can be read, and for what could not be written to until now."""
        out = select.poll()
        for connection in self._connections:
            out.register(connection, select.POLLOUT)
        free = {connection for connection, _ in out.poll(0)}
        poll = select.poll()
        poll.register(self._wakeup, select.POLLIN)
        for connection in self._connections:
            is_full = connection not in free
            poll.register(connection, select.POLLIN | (select.POLLOUT if is_full else 0))
        return poll.poll(1000 * limit_s)


def find_connections() -> frozenset[int]:
    """Give this process's TCP connections to other machines."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        descriptor = int(entry.name)
        with suppress(OSError):
            if str(entry.readlink()).startswith("socket:") and _leads_elsewhere(descriptor):
                found.add(descriptor)
    return frozenset(found)


def _leads_elsewhere(descriptor: int) -> bool:
    borrowed = socket.socket(fileno=descriptor)
    try:
        if borrowed.type != socket.SOCK_STREAM or borrowed.family not in _INTERNET:
            return False
        return bool(borrowed.getpeername()[0] != borrowed.getsockname()[0])
    finally:
        borrowed.detach()
