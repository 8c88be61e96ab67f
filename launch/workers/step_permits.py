"""Step permits: the owner of a trial says how many steps its workers may make."""

from __future__ import annotations

import contextlib
import os
import select


class StepPermits:
    """A worker's end of its permits. Each step takes one.

    Permits come in grants, one for each turn. What is left of a grant is counted here, so that a
    worker that was stopped between two turns always notices that a turn has ended.

    Args:
        descriptor: A non-blocking event, see `open_permits`.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._left = 0

    def try_take(self) -> bool:
        """Take a permit of the present grant, if there is one left."""
        if self._left == 0:
            return False
        self._left -= 1
        return True

    def take(self) -> None:
        """Take a permit; wait for the next grant where the present one is used up."""
        while not self.try_take():
            select.select([self._descriptor], [], [])
            with contextlib.suppress(BlockingIOError):
                self._left = os.eventfd_read(self._descriptor)


def open_permits() -> int:
    """Open the permits of one worker; the caller closes them."""
    return os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)


def grant_steps(descriptor: int, count: int) -> None:
    """Grant so many steps more."""
    os.eventfd_write(descriptor, count)
