"""How long has nothing happened? Counted only while we looked: a stopped process has no opinion."""

from __future__ import annotations

import time
from collections.abc import Callable

_LONGEST_LOOK_S = 2.0
"""What one look counts at most. Whoever was stopped for an hour, by Ctrl-Z or by a machine that
slept, finds what happened meanwhile only after its first look."""


class Patience:
    """A clock of silence.

    Args:
        clock: Gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looked = clock()
        self._silent_s = 0.0

    def restart(self) -> None:
        """Take note that something has happened."""
        self._looked = self._clock()
        self._silent_s = 0.0

    def look(self) -> float:
        """Give the seconds in which nothing has happened. To be called every second or so."""
        now = self._clock()
        self._silent_s += min(now - self._looked, _LONGEST_LOOK_S)
        self._looked = now
        return self._silent_s
