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
DATA_LIMIT_S = 300.0
"""While data are made ready: a slow server may not answer for a while."""

_WAITS = 2
"""So many times that long a node waits for others, which by then have noticed their own hang."""
_WINDOW_STEPS = 100

_ASK_AFTER_S = 5.0
_IDLE_S = 0.05
"""Processor time that is as good as none, however long it took."""


class IdleWatch:
    """Holds workers against the clock that do what is no step.

    They may take any time for it, but not be idle and silent for long.

    Args:
        limit_s: Longest time; ``None``: a minute.
        clock: Gives seconds.
    """

    def __init__(
        self, limit_s: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit_s = limit_s or _LEAST_S
        self._patience = Patience(clock)
        self._cpu_s: float | None = None
        self._printed_bytes = 0

    def restart(self) -> None:
        """Take note that something has happened."""
        self._patience.restart()
        self._cpu_s = None

    def find_hang(self, printed_bytes: int, read_cpu_s: Callable[[], float]) -> str | None:
        """Say for how long nothing was done, ``None`` while that is not too long.

        Args:
            printed_bytes: What the workers have printed so far.
            read_cpu_s: Gives the processor time of the workers so far.
        """
        if printed_bytes != self._printed_bytes:
            self._printed_bytes = printed_bytes
            self.restart()
        silent_s = self._patience.look()
        if silent_s < min(_ASK_AFTER_S, self._limit_s):
            return None
        cpu_s = read_cpu_s()
        if self._cpu_s is None:
            self._cpu_s = cpu_s
        if cpu_s - self._cpu_s > _IDLE_S:
            self._patience.restart()
            self._cpu_s = cpu_s
            return None
        return None if silent_s <= self._limit_s else f"idle for {silent_s:.0f} s"


class HangWatch:
    """Holds the steps of a node against the clock; what is no step, as `IdleWatch` does.

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
        self._waiting = Patience(clock)
        self._idle = IdleWatch(limit_s, clock)
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
        self._idle.restart()

    def find_hang(
        self, steps: StepServer, printed_bytes: int, read_cpu_s: Callable[[], float]
    ) -> str | None:
        """Say what this node has not done in time, ``None`` while it may still come.

        Args:
            steps: Knows how far the node is, and whether it waits for others.
            printed_bytes: What its workers have printed so far.
            read_cpu_s: Gives the processor time of its workers so far.
        """
        seen = (steps.steps, steps.answered_at)
        if seen != self._seen or not steps.is_waiting:
            self._waiting.restart()
        if seen != self._seen or steps.is_waiting:
            self._seen = seen
            self._patience.restart()
            self._idle.restart()
        if not self._is_in_steps:
            idle = self._idle.find_hang(printed_bytes, read_cpu_s)
            return None if idle is None else f"{idle} outside of its steps"
        silent_s, waited_s = self._patience.look(), self._waiting.look()
        step_s = median(self._times_s)
        limit_s = self._limit_s or max(_LEAST_S, _STEPS * step_s)
        if waited_s > _WAITS * limit_s:
            return (
                f"waited for the gradients of other nodes for {waited_s:.0f} s, and none of "
                "them hangs: do large packets reach them (the MTU of the network)?"
            )
        if silent_s <= limit_s:
            return None
        return f"no step for {silent_s:.0f} s, where steps took {step_s:.3g} s"
