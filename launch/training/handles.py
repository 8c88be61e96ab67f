"""By what do worker processes of one node meet? Descriptors that their owner opens for them.

Apart from the group itself, which needs torch: who starts workers must not have to load it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

QUESTION_BYTES = 4 << 20
"""Beginning of the memory, through which workers and their rank talk:
`launch.exchange.questions`."""


@dataclass(frozen=True, slots=True)
class GroupHandles:
    """Open file descriptors by which worker processes of one node meet, and their rank."""

    memory: int
    """An anonymous file. Unlike /dev/shm it has no size limit but the memory itself, and
    nothing of it is left when its last user dies."""

    meeting: int
    """An anonymous file by which the workers' sockets find one another."""

    arrivals: int
    departures: tuple[int, int]

    wakeup: int
    """By which workers tell their rank to look."""

    agreements: tuple[int, int]
    """By which the rank lets them go on when the workers of all nodes have computed theirs."""

    sums: tuple[int, int]
    """Likewise when the gradients of all nodes are summed."""

    answers: tuple[int, int]
    """Likewise when the rank has answered a question."""

    @classmethod
    def create(cls) -> GroupHandles:
        """Open a new set; the caller closes it."""
        memory = os.memfd_create("ddlplan", os.MFD_CLOEXEC)
        os.ftruncate(memory, QUESTION_BYTES)
        return cls(
            memory=memory,
            meeting=os.memfd_create("ddlplan-meeting", os.MFD_CLOEXEC),
            arrivals=os.eventfd(0, os.EFD_CLOEXEC),
            departures=_semaphores(),
            wakeup=os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK),
            agreements=_semaphores(),
            sums=_semaphores(),
            answers=_semaphores(),
        )

    @classmethod
    def from_descriptors(cls, descriptors: Sequence[int]) -> GroupHandles:
        """Take over descriptors in the order that `descriptors` gives them."""
        memory, meeting, arrivals, wakeup, *pairs = descriptors
        departures, agreements, sums, answers = zip(pairs[::2], pairs[1::2], strict=True)
        return cls(
            memory=memory,
            meeting=meeting,
            arrivals=arrivals,
            departures=departures,
            wakeup=wakeup,
            agreements=agreements,
            sums=sums,
            answers=answers,
        )

    def descriptors(self) -> tuple[int, ...]:
        """List the descriptors, to be passed on to a worker."""
        return (
            *(self.memory, self.meeting, self.arrivals, self.wakeup),
            *(*self.departures, *self.agreements, *self.sums, *self.answers),
        )

    def close(self) -> None:
        """Close every descriptor; workers and the rank keep theirs."""
        for descriptor in self.descriptors():
            os.close(descriptor)


def _semaphores() -> tuple[int, int]:
    flags = os.EFD_CLOEXEC | os.EFD_SEMAPHORE
    return os.eventfd(0, flags), os.eventfd(0, flags)
