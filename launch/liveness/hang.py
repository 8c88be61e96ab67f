"""Watchdogs for steps and for the work between steps of one node."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from statistics import median

from launch.gradient_sync.node_channel.step_server import StepServer
from launch.liveness.inactivity import InactivityTimer

_MEDIAN_FACTOR = 20
"""A step that takes so many times the time of the others counts as hanging."""

_MIN_LIMIT_S = 60.0
DATA_TIMEOUT_S = 300.0
"""Limit while data are prepared: a slow server may take a while."""

_WAIT_FACTOR = 2
"""A node waits for others so many times that long: by then they have noticed their own hang."""
_WINDOW_STEPS = 100

_CPU_CHECK_AFTER_S = 5.0
_IDLE_CPU_S = 0.05
"""Processor time that counts as none."""


class IdleWatchdog:
    """Finds workers that hang outside of steps.

    They may take any time there, but not be idle without output for long.

    Args:
        limit_s: Longest time; ``None``: a minute.
        clock: Gives seconds.
    """

    def __init__(
        self, limit_s: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit_s = limit_s or _MIN_LIMIT_S
        self._inactivity = InactivityTimer(clock)
        self._cpu_s: float | None = None
        self._printed_bytes = 0

    def restart(self) -> None:
        """Restart: something has happened."""
        self._inactivity.restart()
        self._cpu_s = None

    def find_hang(self, printed_bytes: int, read_cpu_s: Callable[[], float]) -> str | None:
        """Report for how long nothing was done, ``None`` while that is not too long.

        Args:
            printed_bytes: Bytes that the workers have printed so far.
            read_cpu_s: Reads the processor time of the workers so far.
        """
        if printed_bytes != self._printed_bytes:
            self._printed_bytes = printed_bytes
            self.restart()
        silent_s = self._inactivity.poll()
        if silent_s < min(_CPU_CHECK_AFTER_S, self._limit_s):
            return None
        cpu_s = read_cpu_s()
        if self._cpu_s is None:
            self._cpu_s = cpu_s
        if cpu_s - self._cpu_s > _IDLE_CPU_S:
            self._inactivity.restart()
            self._cpu_s = cpu_s
            return None
        return None if silent_s <= self._limit_s else f"idle for {silent_s:.0f} s"


class StepWatchdog:
    """Finds hanging steps of a node; outside of steps, works as `IdleWatchdog`.

    Args:
        limit_s: Longest time without a step; ``None``: 20 times the median step, at least a
            minute.
        clock: Gives seconds.
    """

    def __init__(
        self, limit_s: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit_s = limit_s
        self._inactivity = InactivityTimer(clock)
        self._waiting = InactivityTimer(clock)
        self._idle = IdleWatchdog(limit_s, clock)
        self._times_s: deque[float] = deque(maxlen=_WINDOW_STEPS)
        self._is_stepping = False
        self._last_progress = (0, 0.0)

    def add_step(self, time_s: float) -> None:
        self._times_s.append(time_s)
        self._is_stepping = True
        self._inactivity.restart()

    def pause_steps(self) -> None:
        """Record that the workers leave their steps."""
        self._is_stepping = False
        self._idle.restart()

    def find_hang(
        self, steps: StepServer, printed_bytes: int, read_cpu_s: Callable[[], float]
    ) -> str | None:
        """Report what this node has not done in time, ``None`` without a hang.

        Args:
            steps: Knows how far the node is, and whether it waits for others.
            printed_bytes: Bytes that its workers have printed so far.
            read_cpu_s: Reads the processor time of its workers so far.
        """
        progress = (steps.steps, steps.replied_at)
        if progress != self._last_progress or not steps.is_waiting:
            self._waiting.restart()
        if progress != self._last_progress or steps.is_waiting:
            self._last_progress = progress
            self._inactivity.restart()
            self._idle.restart()
        if not self._is_stepping:
            idle = self._idle.find_hang(printed_bytes, read_cpu_s)
            return None if idle is None else f"{idle} outside of its steps"
        silent_s, waited_s = self._inactivity.poll(), self._waiting.poll()
        step_s = median(self._times_s)
        limit_s = self._limit_s or max(_MIN_LIMIT_S, _MEDIAN_FACTOR * step_s)
        if waited_s > _WAIT_FACTOR * limit_s:
            return (
                f"waited for the gradients of other hosts for {waited_s:.0f} s, and none of "
                "them hangs: do large packets reach them (the MTU of the network)?"
            )
        if silent_s <= limit_s:
            return None
        return f"no step for {silent_s:.0f} s, where steps took {step_s:.3g} s"
