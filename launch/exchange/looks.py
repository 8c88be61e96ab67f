"""How long does a rank sleep between two looks at what is on its way? As long as the link allows.

Messages move only while MPI is called, and a core that computes loses 30 to 50 us for each look.
"""

from __future__ import annotations

import time

_SHORT_S, _LONG_S = 0.0005, 0.002
_BUSY_S = 0.003
"""So soon after something has moved, more is likely: on a link of 10 Gb/s a part of a block arrives
every half millisecond, at 1 Gb/s every four."""


class Looks:
    """Says how long to sleep."""

    def __init__(self) -> None:
        self._moved_at = 0.0

    def note(self, *, has_moved: bool) -> None:
        """Take note of what a look has found."""
        if has_moved:
            self._moved_at = time.monotonic()

    @property
    def pause_s(self) -> float:
        """Until the next look, where the last one has found nothing."""
        return _SHORT_S if time.monotonic() < self._moved_at + _BUSY_S else _LONG_S
