"""Replay: recorded trials in place of a machine, with a clock that they wind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import cycle, islice

import numpy as np

from launch.plan import Plan
from launch.reports import StepDone
from planner.quantities import format_count
from planner.trials.contender import TrialFailedError
from planner.trials.drift import remove_drift
from planner.trials.grid import Grid
from planner.trials.result import Outcome, TrialResult
from probes.disturbance import Disturbance


class Replay:
    """A machine that a grid stands for.

    Each start of a plan plays its recorded steps from another place, in their order, so steps
    depend on one another as they did. Of a race the means of turns are recorded, and a turn plays
    one of them, the drift of the machine taken out: it was another's turn that shared it. What was
    recorded few times comes again and again, so that its noise seems smaller than it is.

    Args:
        grid: What was recorded.
        seed: Of the places.
    """

    def __init__(self, grid: Grid, *, seed: int = 0) -> None:
        self.now_s = 0.0
        """Time that has passed for whoever searches."""
        self._random = np.random.default_rng(seed)
        self._results: dict[Plan, list[TrialResult]] = defaultdict(list)
        for result in remove_drift(grid.results):
            self._results[result.plan].append(result)

    def clock(self) -> float:
        """Give the time."""
        return self.now_s

    def start(self, plan: Plan) -> ReplayedContender:
        """Start a plan; it takes as long as it did.

        Raises:
            TrialFailedError: It failed then, or was not recorded.
        """
        recorded = self._results.get(plan)
        if recorded is None:
            raise TrialFailedError(Outcome.CRASH, "it is not among the recorded plans")
        result = recorded[self._random.integers(len(recorded))]
        if result.measurement is None:
            self.now_s += result.elapsed_s
            reason = result.reason or f"recorded as {result.outcome}"
            raise TrialFailedError(result.outcome, reason, result.log_tail)
        measured = result.measurement
        self.now_s += max(0.0, result.elapsed_s - measured.total_s) / measured.starts
        place = int(self._random.integers(len(measured.samples_s)))
        return ReplayedContender(self, result, place)


class ReplayedContender:
    """A recorded plan that makes its steps again.

    Args:
        replay: Whose clock they wind.
        result: What was recorded.
        place: Sample to begin with, after the warm-up.
    """

    def __init__(self, replay: Replay, result: TrialResult, place: int) -> None:
        assert result.measurement is not None
        self.peak_memory_bytes = result.peak_memory_bytes
        self.compile_s = result.compile_s
        self.disturbance: Disturbance | None = None
        self._replay = replay
        self._samples = result.plan.node_batch
        drift = result.measurement.drift
        self._warmup_s = [time_s / drift for time_s in result.measurement.warmup_s]
        times_s = [time_s / drift for time_s in result.measurement.samples_s]
        self._times_s = cycle([*times_s[place:], *times_s[:place]])
        self._are_turns = bool(result.measurement.rounds)
        self._made = 0

    def make_steps(self, count: int, *, time_limit_s: float) -> Sequence[StepDone]:
        """Make so many steps; the first ones are those of the warm-up.

        Raises:
            TrialFailedError: They would take longer than they may.
        """
        times_s = self._warmup_s[self._made : self._made + count]
        left = count - len(times_s)
        if self._are_turns and left:
            times_s += [next(self._times_s)] * left
        else:
            times_s += islice(self._times_s, left)
        steps = [
            StepDone(step=number, epoch=1, time_s=time_s, samples=self._samples, loss=0.0)
            for number, time_s in enumerate(times_s, start=self._made + 1)
        ]
        self._made += count
        needed_s = sum(times_s)
        self._replay.now_s += min(needed_s, time_limit_s)
        if needed_s > time_limit_s:
            wanted = format_count(count, "step")
            reason = f"{needed_s:.1f} s for {wanted}, more time than the plan had"
            raise TrialFailedError(Outcome.TIME_LIMIT, reason)
        return steps

    def close(self) -> None:
        """End it: nothing is left behind."""
