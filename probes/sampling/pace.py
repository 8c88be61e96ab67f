"""Pace of work that is repeated: at most so often, and at most so large a part of the time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Pace:
    """Says when a work is due again, by what it costs.

    Args:
        every_s: Time from its end to the next one, at least.
        part: Of the time that it may take: what took 1 ms comes again after 1 ms / ``part``.
        most_s: It comes again after so long at the latest, whatever it has cost.
        clock: Tells the time.
        cost_clock: Tells what the work has cost; processor time of this thread by default.
    """

    def __init__(
        self,
        every_s: float,
        part: float,
        *,
        most_s: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
        cost_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._every_s = every_s
        self._part = part
        self._most_s = most_s
        self._clock = clock
        self._cost_clock = cost_clock
        self._due_at = clock()

    @property
    def is_due(self) -> bool:
        """Whether the work may be done now."""
        return self._clock() >= self._due_at

    @contextmanager
    def working(self) -> Iterator[None]:
        """Do the work in this block."""
        began = self._cost_clock()
        try:
            yield
        finally:
            cost_s = self._cost_clock() - began
            self._due_at = self._clock() + max(
                self._every_s, min(cost_s / self._part, self._most_s)
            )
