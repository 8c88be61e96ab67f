"""By what do worker processes of one node meet? Descriptors that their owner opens for them.

Apart from the group itself, which needs torch: who starts workers must not have to load it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupHandles:
    """Open file descriptors by which worker processes of one node meet."""

    memory: int
    """An anonymous file. Unlike /dev/shm it has no size limit but the memory itself, and
    nothing of it is left when its last user dies."""

    meeting: int
    """An anonymous file by which the workers' sockets find one another."""

    arrivals: int
    departures: tuple[int, int]

    @classmethod
    def create(cls) -> GroupHandles:
        """Open a new set; the caller closes it."""
        return cls(
            memory=os.memfd_create("ddlplan", os.MFD_CLOEXEC),
            meeting=os.memfd_create("ddlplan-meeting", os.MFD_CLOEXEC),
            arrivals=os.eventfd(0, os.EFD_CLOEXEC),
            departures=(
                os.eventfd(0, os.EFD_CLOEXEC | os.EFD_SEMAPHORE),
                os.eventfd(0, os.EFD_CLOEXEC | os.EFD_SEMAPHORE),
            ),
        )

    @classmethod
    def from_descriptors(cls, descriptors: Sequence[int]) -> GroupHandles:
        """Take over descriptors in the order that `descriptors` gives them."""
        memory, meeting, arrivals, even, odd = descriptors
        return cls(memory=memory, meeting=meeting, arrivals=arrivals, departures=(even, odd))

    def descriptors(self) -> tuple[int, ...]:
        """List the descriptors, to be passed on to a worker."""
        return (self.memory, self.meeting, self.arrivals, *self.departures)

    def close(self) -> None:
        """Close every descriptor; workers keep theirs."""
        for descriptor in self.descriptors():
            os.close(descriptor)
