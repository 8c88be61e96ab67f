"""How long does a rank sleep between two looks at what is on its way? As long as the link allows.

Messages move only while MPI is called, and a core that computes loses 30 to 50 us for each look.
"""

from __future__ import annotations

import time

_SHORTEST_S, _LONGEST_S = 0.0005, 0.004
_LOOKS_A_PART = 8
"""Between two parts of blocks that arrive, so that what is sent on is late by no more than an
eighth: one arrives every 1.7 ms on a link of 10 Gb/s, every 17 ms at 1 Gb/s."""

_MEMORY = 8
"""Parts over which the time between them is averaged."""


class Looks:
    """Says how long to sleep."""

    def __init__(self) -> None:
        self._moved_at = time.monotonic()
        self._between_s = _LOOKS_A_PART * _SHORTEST_S

    def note(self, *, has_moved: bool) -> None:
        """Take note of what a look has found."""
        if has_moved:
            now = time.monotonic()
            between_s = min(now - self._moved_at, _LOOKS_A_PART * _LONGEST_S)
            self._between_s += (between_s - self._between_s) / _MEMORY
            self._moved_at = now

    @property
    def pause_s(self) -> float:
        """Until the next look, where the last one has found nothing."""
        return max(self._between_s / _LOOKS_A_PART, _SHORTEST_S)
