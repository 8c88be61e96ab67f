"""What does averaging between nodes cost? Added up, and told about once a second."""

from __future__ import annotations

import time
from collections.abc import Callable

from launch.exchange.server import SumTimes
from launch.workers.reports import Exchanged, Report, SharesChanged

_INTERVAL_S = 1.0


class Tally:
    """Adds up what the sums of a job's steps took, and tells of it.

    Args:
        say: Takes what the user should hear.
    """

    def __init__(self, say: Callable[[Report], None]) -> None:
        self._say = say
        self._all_steps = 0
        self._told_at = time.monotonic()
        self._clear()

    def __call__(self, sum_: SumTimes) -> None:
        """Take note of a step."""
        self._steps += 1
        self._all_steps += 1
        self._sent_bytes += sum_.sent_bytes
        self._waited_s += sum_.waited_s
        if sum_.node_batches is not None:
            self._say(
                SharesChanged(
                    step=self._all_steps,
                    node_batches=sum_.node_batches,
                    computed_s=sum_.computed_s,
                )
            )
        if time.monotonic() >= self._told_at + _INTERVAL_S:
            self.tell()

    def tell(self) -> None:
        """Tell of what was not told yet."""
        if self._steps:
            sent, waited_s = self._sent_bytes, self._waited_s
            self._say(Exchanged(steps=self._steps, sent_bytes=sent, waited_s=waited_s))
        self._told_at = time.monotonic()
        self._clear()

    def _clear(self) -> None:
        self._steps, self._sent_bytes, self._waited_s = 0, 0, 0.0
