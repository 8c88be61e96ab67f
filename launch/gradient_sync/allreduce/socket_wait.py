"""Sleep of a rank until one of MPI's sockets has data, or can be written to again.

Messages move only while MPI is called, and MPI has no call that sleeps until there is something to
move. But its connections are sockets of this process, and the kernel reports when one of them can
be read, or written to again: until then a poll of MPI would find nothing.

Open MPI tells of a message that it reads to its end in one call only in the next call. So its
sockets can be empty while a message waits in its memory: the sleep begins after a poll before which
they were empty already.
"""

from __future__ import annotations

import os
import select
import socket
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path

_MAX_WAIT_S = 0.05
"""Longest sleep while no socket is ready."""

_MAX_MISSED = 8
"""Messages in a row that arrived without a ready socket: then MPI uses another network, such as
InfiniBand, and sockets are no longer waited for."""

_INTERNET = (socket.AF_INET, socket.AF_INET6)


class _WakeReason(Enum):
    """What has ended a sleep."""

    TIMEOUT = auto()
    WORKER = auto()
    CONNECTION = auto()


class SocketWait:
    """Sleeps until a message may have come, or may be sent on.

    Args:
        wakeup: Event descriptor by which workers end the sleep.
    """

    def __init__(self, wakeup: int) -> None:
        self._wakeup = wakeup
        self._connections: frozenset[int] = frozenset()
        self._woken = _WakeReason.WORKER
        self._missed = 0
        self._was_quiet = False
        """Whether no socket was ready before the last poll, so that it has read nothing."""

    def record(self, *, has_progressed: bool) -> None:
        """Record whether a poll of MPI found progress; the first one after a sleep counts."""
        if not has_progressed:
            return
        self._was_quiet = False
        # Progress after a worker's wake-up may be the worker's: it says nothing about sockets.
        woken, self._woken = self._woken, _WakeReason.WORKER
        if woken is _WakeReason.CONNECTION:
            self._missed = 0
        elif woken is _WakeReason.TIMEOUT and self._missed < _MAX_MISSED:
            self._missed += 1
            is_blind = self._missed == _MAX_MISSED
            self._connections = frozenset() if is_blind else find_connections()

    def sleep(self, min_s: float) -> None:
        """Sleep for so long, and then until a socket is ready.

        Args:
            min_s: What arrives meanwhile is read at once, which costs less than a wake-up for each
                packet. A worker ends the sleep earlier.
        """
        may_block, self._was_quiet = self._was_quiet, False
        full = self._find_full()  # before the pause, after which MPI may have more for them
        if select.select([self._wakeup], [], [], min_s)[0]:
            self._woken = _WakeReason.WORKER
        elif self._connections:
            self._poll_connections(full, may_block=may_block)
        else:
            self._woken = _WakeReason.TIMEOUT
        with suppress(BlockingIOError):
            os.eventfd_read(self._wakeup)

    def _poll_connections(self, full: frozenset[int], *, may_block: bool) -> None:
        """Wait until a socket can be read, or written to where it was full."""
        poll = select.poll()
        poll.register(self._wakeup, select.POLLIN)
        for connection in self._connections:
            is_full = connection in full
            poll.register(connection, select.POLLIN | (select.POLLOUT if is_full else 0))
        ready = {descriptor for descriptor, _ in poll.poll(1000 * _MAX_WAIT_S if may_block else 0)}
        self._was_quiet = not ready
        if ready - {self._wakeup}:
            self._woken = _WakeReason.CONNECTION
        elif ready:
            self._woken = _WakeReason.WORKER
        elif may_block:
            self._woken = _WakeReason.TIMEOUT
        # Else what had ended the sleep before stays: progress is of what the last poll has read.

    def _find_full(self) -> frozenset[int]:
        """Find the sockets that cannot be written to."""
        poll = select.poll()
        for connection in self._connections:
            poll.register(connection, select.POLLOUT)
        return self._connections - {connection for connection, _ in poll.poll(0)}


def find_connections() -> frozenset[int]:
    """Return this process's TCP connections to other machines."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        descriptor = int(entry.name)
        with suppress(OSError):
            if str(entry.readlink()).startswith("socket:") and _is_remote(descriptor):
                found.add(descriptor)
    return frozenset(found)


def _is_remote(descriptor: int) -> bool:
    borrowed = socket.socket(fileno=descriptor)
    try:
        if borrowed.type != socket.SOCK_STREAM or borrowed.family not in _INTERNET:
            return False
        return bool(borrowed.getpeername()[0] != borrowed.getsockname()[0])
    finally:
        borrowed.detach()
