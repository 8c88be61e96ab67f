"""Has a node stopped making steps? Its own part of them: those of others it may wait for."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from statistics import median

from launch.exchange.server import StepServer
from launch.patience import Patience

_STEPS = 20
"""A step that takes so many times the time of the others does not end any more."""

_LEAST_S = 60.0
_OTHER_LEAST_S = 1800.0
"""For what is no step, such as a validation or the way to the first step: how long that takes,
nobody knows."""

_WINDOW_STEPS = 100


class HangWatch:
    """Holds the steps of a node against the clock.

    Args:
        limit_s: Longest time without a step; ``None``: 20 times the median step, at least a
            minute.
        clock: Gives seconds.
    """

    def __init__(
        self, limit_s: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit_s = limit_s
        self._patience = Patience(clock)
        self._times_s: deque[float] = deque(maxlen=_WINDOW_STEPS)
        self._is_in_steps = False
        self._seen = (0, 0.0)

    def add_step(self, time_s: float) -> None:
        """Take note of a step."""
        self._times_s.append(time_s)
        self._is_in_steps = True
        self._patience.restart()

    def leave_steps(self) -> None:
        """Take note that what comes now is no step."""
        self._is_in_steps = False
        self._patience.restart()

    @property
    def limit_s(self) -> float:
        """Longest time that may pass now."""
        if not self._is_in_steps:
            return max(_OTHER_LEAST_S, self._limit_s or 0.0)
        return self._limit_s or max(_LEAST_S, _STEPS * median(self._times_s))

    def find_hang(self, steps: StepServer) -> str | None:
        """Say what this node has not done in time, ``None`` while it may still come."""
        seen = (steps.steps, steps.answered_at)
        if seen != self._seen or steps.is_waiting:
            self._seen = seen
            self._patience.restart()
        if (silent_s := self._patience.look()) <= self.limit_s:
            return None
        if not self._is_in_steps:
            return f"nothing has happened for {silent_s:.0f} s"
        step_s = median(self._times_s)
        return f"no step for {silent_s:.0f} s, where steps took {step_s:.3g} s"
