"""Descriptors that the processes of a node share, opened by who starts the workers.

Apart from `launch.local_group.group`, which needs torch: the process that starts workers has none.

Each pair of semaphores is used in alternate steps, so that a fast worker that waits again cannot
take the wake-up of a slow one.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass

REQUEST_BYTES = 4 << 20
"""Beginning of the memory: that of `launch.gradient_sync.node_channel.requests`."""

_MFD_CLOEXEC = 1  # from linux/memfd.h


@dataclass(frozen=True, slots=True)
class SharedDescriptors:
    """Open file descriptors that the worker processes of one node share with their rank."""

    memory: int
    """Anonymous file. Unlike /dev/shm it has no size limit but the memory itself, and nothing of it
    is left when its last user dies."""

    rendezvous: int
    """Anonymous file by which the workers' sockets find one another."""

    barrier_count: int
    """Event that counts workers at a barrier."""

    departures: tuple[int, int]
    """Semaphores that release the workers from a barrier."""

    wakeup: int
    """Event that wakes the rank."""

    agreements: tuple[int, int]
    """Semaphores that release the workers when those of all nodes have computed their gradients."""

    sums: tuple[int, int]
    """Likewise, when the gradients of all nodes are summed."""

    replies: tuple[int, int]
    """Likewise, when the rank has replied to a request."""

    @classmethod
    def create(cls) -> SharedDescriptors:
        """Open a new set; the caller closes it."""
        opened: list[int] = []
        try:
            opened.append(anonymous_file(b"ddlplan"))
            os.ftruncate(opened[0], REQUEST_BYTES)
            opened.append(anonymous_file(b"ddlplan-rendezvous"))
            kinds = (0, os.EFD_NONBLOCK, *[os.EFD_SEMAPHORE] * 8)  # in the order of `numbers`
            for kind in kinds:
                opened.append(os.eventfd(0, os.EFD_CLOEXEC | kind))  # noqa: PERF401 - closed below
        except OSError:
            for descriptor in opened:
                os.close(descriptor)
            raise
        return cls.from_numbers(opened)

    @classmethod
    def from_numbers(cls, descriptors: Sequence[int]) -> SharedDescriptors:
        """Take over descriptors in the order of `numbers`."""
        memory, rendezvous, barrier_count, wakeup, *pairs = descriptors
        departures, agreements, sums, replies = zip(pairs[::2], pairs[1::2], strict=True)
        return cls(
            memory=memory,
            rendezvous=rendezvous,
            barrier_count=barrier_count,
            departures=departures,
            wakeup=wakeup,
            agreements=agreements,
            sums=sums,
            replies=replies,
        )

    def numbers(self) -> tuple[int, ...]:
        """List the descriptors, for a worker to inherit."""
        return (
            *(self.memory, self.rendezvous, self.barrier_count, self.wakeup),
            *(*self.departures, *self.agreements, *self.sums, *self.replies),
        )

    def close(self) -> None:
        """Close every descriptor; workers and the rank keep theirs."""
        for descriptor in self.numbers():
            os.close(descriptor)


def anonymous_file(name: bytes) -> int:
    """Open a file in memory; the caller closes it.

    Not by `os`: Python that was built on an old system, as conda's and uv's, has no such call.
    """
    descriptor: int = ctypes.CDLL(None, use_errno=True).memfd_create(name, _MFD_CLOEXEC)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return descriptor
