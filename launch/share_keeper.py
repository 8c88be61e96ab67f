"""When do the shares change while training? When a node has become slower or faster."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from launch.shares import StepTime, equalise
from probes.timing import Interval, Measurement

_NOTABLE_CHANGE = 0.05
_CERTAIN_CHANGE = 0.025
_LEAST_STEPS_BETWEEN = 50

_LEAST_GAIN = 0.01
"""Of the step time: below it, shares of another size are not worth the kernels chosen anew."""

_WINDOW_STEPS = 30
"""Steps whose median tells a node's speed: with steps that vary by 10 % it is off by some 2 %."""

_WARMUP_STEPS = 3
"""First steps of a training, in which memory is taken from the system and kernels are chosen."""


class ShareKeeper:
    """Changes the shares while training, where a node has become slower or faster.

    Decides from times alone, without any chance in it: ranks that add the same numbers come to the
    same shares in the same step, without a word between them.

    A node counts as changed where the median of the last steps is more than 5 % off what was
    believed of it, and its whole 95 % interval more than half of that: it is looked at in every
    step, so noise would else move shares for ever. There are at least 50 steps between two changes.

    Args:
        times: What is believed of each node.
        batches: Shares to begin with.
        caps: Largest node batch of each node, ``None`` where nothing is known to limit it.
        floors: Smallest node batch of each node, 1 where left out.
        granules: What each node's batch should be a multiple of, 1 where left out.
    """

    def __init__(
        self,
        times: Sequence[StepTime],
        batches: Sequence[int],
        caps: Sequence[int | None] | None = None,
        *,
        floors: Sequence[int] | None = None,
        granules: Sequence[int] | None = None,
    ) -> None:
        self._times = list(times)
        self._batches = tuple(batches)
        self._caps = caps
        self._floors = floors
        self._granules = granules
        self._window: deque[tuple[float, ...]] = deque(maxlen=_WINDOW_STEPS)
        self._steps = 0
        self._next_change = _WARMUP_STEPS + _WINDOW_STEPS

    @property
    def times(self) -> tuple[StepTime, ...]:
        """What is believed of each node now."""
        return tuple(self._times)

    @property
    def batches(self) -> tuple[int, ...]:
        """Shares of the steps to come."""
        return self._batches

    def add(self, step_times_s: Sequence[float]) -> tuple[int, ...] | None:
        """Take note of a step; give new shares, ``None`` where they stay as they are.

        Args:
            step_times_s: Time that each node has computed, without waiting for others; its
                share of this step must have been what `batches` gave before.
        """
        self._steps += 1
        if self._steps > _WARMUP_STEPS:
            self._window.append(tuple(step_times_s))
        if self._steps < self._next_change or len(self._window) < _WINDOW_STEPS:
            return None
        measured = [_measured(column) for column in zip(*self._window, strict=True)]
        believed = [t.at(n) for t, n in zip(self._times, self._batches, strict=True)]
        if not any(_has_changed(m, s) for m, s in zip(measured, believed, strict=True)):
            return None
        self._times = [
            time if interval is None else time.scaled(interval.median / time_s)
            for time, interval, time_s in zip(self._times, measured, believed, strict=True)
        ]
        self._next_change = self._steps + _LEAST_STEPS_BETWEEN
        batches = equalise(
            self._times,
            sum(self._batches),
            self._caps,
            floors=self._floors,
            granules=self._granules,
        )
        if self._step_s(batches) > (1 - _LEAST_GAIN) * self._step_s(self._batches):
            return None
        self._batches = batches
        self._window.clear()
        return batches

    def _step_s(self, batches: Sequence[int]) -> float:
        return max(time.at(n) for time, n in zip(self._times, batches, strict=True))


def _measured(times_s: Sequence[float]) -> Interval | None:
    """Give the median of a window, ``None`` where a node could not tell its times."""
    if not all(0 < time_s < math.inf for time_s in times_s):
        return None
    return Measurement(samples_s=tuple(times_s)).interval_s()


def _has_changed(measured: Interval | None, believed_s: float) -> bool:
    if measured is None or believed_s == 0:
        return False
    if abs(measured.median / believed_s - 1) <= _NOTABLE_CHANGE:
        return False
    nearest_s = min(max(believed_s, measured.low), measured.high)
    return abs(nearest_s / believed_s - 1) > _CERTAIN_CHANGE
