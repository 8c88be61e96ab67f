"""Rebalancing: shares change while training, when a node becomes slower or faster."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from launch.shares import NodeLimits, StepTime, balance_batches
from probes.timing import Interval, Measurement

_NOTABLE_CHANGE = 0.05
_CERTAIN_CHANGE = 0.025
_MIN_STEPS_BETWEEN = 50

_MIN_GAIN = 0.01
"""Least gain in step time, as a share: below it, new shares are not worth choosing kernels anew."""

_WINDOW_STEPS = 30
"""Steps whose median gives a node's speed: with steps that vary by 10 % it is off by some 2 %."""

_WARMUP_STEPS = 3
"""First steps of a training, in which memory is taken from the system and kernels are chosen."""


class Rebalancer:
    """Changes the shares of the nodes while training.

    Decides from times alone, without random numbers: ranks that add the same times get the same
    shares in the same step, without a message.

    A node counts as changed where the median of the last steps differs by more than 5 % from its
    expected time, and its whole 95 % interval by more than half of that: it is checked in every
    step, so noise would else move shares for ever. At least 50 steps are between two changes.

    Args:
        times: Expected step time of each node.
        batches: Shares to begin with.
        limits: Of each node, none where left out.

    Attributes:
        times: Expected step time of each node now.
        batches: Shares of the next steps.
    """

    def __init__(
        self,
        times: Sequence[StepTime],
        batches: Sequence[int],
        limits: Sequence[NodeLimits] | None = None,
    ) -> None:
        self.times = list(times)
        self.batches = tuple(batches)
        self._limits = limits
        self._window: deque[tuple[float, ...]] = deque(maxlen=_WINDOW_STEPS)
        self._steps = 0
        self._next_change = _WARMUP_STEPS + _WINDOW_STEPS

    def add(self, step_times_s: Sequence[float]) -> tuple[int, ...] | None:
        """Record a step; return new shares, ``None`` where they stay as they are.

        Args:
            step_times_s: Time that each node has computed, without waiting for others; its share
                of this step must have been that of `batches`.
        """
        self._steps += 1
        if self._steps > _WARMUP_STEPS:
            self._window.append(tuple(step_times_s))
        if self._steps < self._next_change or len(self._window) < _WINDOW_STEPS:
            return None
        measured = [_measured(column) for column in zip(*self._window, strict=True)]
        expected = [t.at(n) for t, n in zip(self.times, self.batches, strict=True)]
        if not any(_has_changed(m, s) for m, s in zip(measured, expected, strict=True)):
            return None
        self.times = [
            time if interval is None else time.scaled(interval.median / time_s)
            for time, interval, time_s in zip(self.times, measured, expected, strict=True)
        ]
        self._next_change = self._steps + _MIN_STEPS_BETWEEN
        batches = balance_batches(self.times, sum(self.batches), self._limits)
        if self._step_s(batches) > (1 - _MIN_GAIN) * self._step_s(self.batches):
            return None
        self.batches = batches
        self._window.clear()
        return batches

    def _step_s(self, batches: Sequence[int]) -> float:
        return max(time.at(n) for time, n in zip(self.times, batches, strict=True))


def _measured(times_s: Sequence[float]) -> Interval | None:
    """Give the median of a window, ``None`` where a time is missing."""
    if not all(0 < time_s < math.inf for time_s in times_s):
        return None
    return Measurement(samples_s=tuple(times_s)).interval_s()


def _has_changed(measured: Interval | None, expected_s: float) -> bool:
    if measured is None or expected_s == 0:
        return False
    if abs(measured.median / expected_s - 1) <= _NOTABLE_CHANGE:
        return False
    nearest_s = min(max(expected_s, measured.low), measured.high)
    return abs(nearest_s / expected_s - 1) > _CERTAIN_CHANGE
