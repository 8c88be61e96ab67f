"""Back-off between two polls of MPI, by how fast the link moves buckets.

Messages move only while MPI is called, and a core that computes loses 30 to 50 us for each poll.
"""

from __future__ import annotations

import time

_MIN_PAUSE_S, _MAX_PAUSE_S = 0.0005, 0.004
_POLLS_PER_BUCKET = 8
"""Polls between two parts of buckets that arrive, so that a part is sent on at most an eighth late:
one arrives every 1.7 ms on a link of 10 Gb/s, every 17 ms at 1 Gb/s."""

_AVERAGED_BUCKETS = 8
"""Parts over which the time between them is averaged."""


class PollBackoff:
    """Length of the next sleep, from how often polls found progress."""

    def __init__(self) -> None:
        self._moved_at = time.monotonic()
        self._between_s = _POLLS_PER_BUCKET * _MIN_PAUSE_S

    def record(self, *, has_progressed: bool) -> None:
        """Record whether a poll found progress."""
        if has_progressed:
            now = time.monotonic()
            between_s = min(now - self._moved_at, _POLLS_PER_BUCKET * _MAX_PAUSE_S)
            self._between_s += (between_s - self._between_s) / _AVERAGED_BUCKETS
            self._moved_at = now

    @property
    def pause_s(self) -> float:
        """Time until the next poll, where the last one has found nothing."""
        return max(self._between_s / _POLLS_PER_BUCKET, _MIN_PAUSE_S)
