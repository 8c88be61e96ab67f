"""Turns of trainings that share one machine: the workers of all but one stand still.

The speed of a virtual machine changes by some ten percent from one minute to the next. So what is
to be compared is started once, and goes on for a few seconds at a time.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from statistics import fmean
from typing import Protocol

from _block import BenchError

_LOOK_S = 0.05
_LIMIT_S = 600.0
_LEAST_STEPS = 2


class Training(Protocol):
    """What goes on without end, and says how long each of its steps took."""

    def next_step_s(self, timeout_s: float) -> float | None:
        """Give the time of its next step; ``None`` where none ends within the timeout.

        Raises:
            BenchError: It has ended.
        """
        ...

    def signal_workers(self, number: int) -> None:
        """Send a signal to the processes that compute."""
        ...


class Turn:
    """Trainings that go on at the same time, and stand still when it is not their turn.

    Args:
        trainings: Just started.
        warm_up: Steps of each that are not timed.
    """

    def __init__(self, trainings: Sequence[Training], *, warm_up: int) -> None:
        self._trainings = trainings
        self._take(0.0, warm_up)

    def take(self, seconds: float) -> list[float]:
        """Go on for so long, or for a few steps; give the mean step time of each training."""
        return [fmean(times) for times in self._take(seconds, _LEAST_STEPS)]

    def close(self) -> None:
        """Let them go on, so that they can end."""
        for training in self._trainings:
            training.signal_workers(signal.SIGCONT)

    def _take(self, seconds: float, least: int) -> list[list[float]]:
        for training in self._trainings:
            training.signal_workers(signal.SIGCONT)
        began_s = time.monotonic()
        times: list[list[float]] = [[] for _ in self._trainings]
        while time.monotonic() < began_s + seconds or min(map(len, times)) < least:
            if time.monotonic() > began_s + _LIMIT_S:
                raise BenchError(f"fewer than {least} steps in {_LIMIT_S:g} s")
            for training, of in zip(self._trainings, times, strict=True):
                time_s = training.next_step_s(_LOOK_S)
                # The step that was interrupted counts for nothing, nor one that is told late.
                if time_s is not None and time_s < time.monotonic() - began_s:
                    of.append(time_s)
        for training in self._trainings:
            training.signal_workers(signal.SIGSTOP)
        return times


def take_turns(turns: Sequence[Turn], *, rounds: int, seconds: float) -> list[list[list[float]]]:
    """Let each go on once a round; give the step times of its trainings, in the order of the turns.

    Every other round goes backwards, so that what drifts evenly favours none.
    """
    found = []
    for number in range(rounds):
        order = range(len(turns))[:: 1 if number % 2 == 0 else -1]
        times = {place: turns[place].take(seconds) for place in order}
        found.append([times[place] for place in range(len(turns))])
    return found
