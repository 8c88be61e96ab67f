"""Inactivity timer, which does not count time in which this process itself was stopped."""

from __future__ import annotations

import time
from collections.abc import Callable

_MAX_INTERVAL_S = 2.0
"""Longest time that one poll counts. A process that was stopped for an hour, by Ctrl-Z or by a
machine that slept, reads what happened meanwhile only after its first poll."""


class InactivityTimer:
    """A timer of inactivity."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._polled_at = clock()
        self._inactive_s = 0.0

    def restart(self) -> None:
        """Restart: something has happened."""
        self._polled_at = self._clock()
        self._inactive_s = 0.0

    def poll(self) -> float:
        """Return the seconds without activity. To be called about every second."""
        now = self._clock()
        self._inactive_s += min(now - self._polled_at, _MAX_INTERVAL_S)
        self._polled_at = now
        return self._inactive_s
