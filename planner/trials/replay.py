"""Replay: recorded trials in place of a machine, with a clock that they wind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from launch.plan import Plan
from launch.reports import StepDone
from planner.trials.contender import TrialFailedError
from planner.trials.grid import Grid
from planner.trials.result import Outcome, TrialResult
from probes.disturbance import Disturbance


class Replay:
    """A machine that a grid stands for.

    Each start of a plan plays its recorded steps from another place, in their order, so steps
    depend on one another as they did.

    Args:
        grid: What was recorded.
        seed: Of the places.
    """

    def __init__(self, grid: Grid, *, seed: int = 0) -> None:
        self.now_s = 0.0
        """Time that has passed for whoever searches."""
        self._random = np.random.default_rng(seed)
        self._results: dict[str, list[TrialResult]] = defaultdict(list)
        for result in grid.results:
            self._results[repr(result.plan)].append(result)

    def clock(self) -> float:
        """Give the time."""
        return self.now_s

    def start(self, plan: Plan) -> ReplayedContender:
        """Start a plan; it takes as long as it did.

        Raises:
            TrialFailedError: It failed then, or was not recorded.
        """
        recorded = self._results.get(repr(plan))
        if recorded is None:
            raise TrialFailedError(Outcome.CRASH, "it is not among the recorded plans")
        result = recorded[self._random.integers(len(recorded))]
        if result.measurement is None:
            self.now_s += result.elapsed_s
            reason = result.reason or f"recorded as {result.outcome}"
            raise TrialFailedError(result.outcome, reason, result.log_tail)
        self.now_s += max(0.0, result.elapsed_s - result.measurement.total_s)
        place = int(self._random.integers(len(result.measurement.samples_s)))
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
        self._warmup_s = list(result.measurement.warmup_s)
        samples_s = result.measurement.samples_s
        self._times_s = [*samples_s[place:], *samples_s[:place]]
        self._made = 0

    def make_steps(self, count: int, *, time_limit_s: float) -> Sequence[StepDone]:
        """Make so many steps; the first ones are those of the warm-up.

        Raises:
            TrialFailedError: They would take longer than they may.
        """
        steps = [self._make_step() for _ in range(count)]
        needed_s = sum(step.time_s for step in steps)
        self._replay.now_s += min(needed_s, time_limit_s)
        if needed_s > time_limit_s:
            raise TrialFailedError(
                Outcome.TIME_LIMIT, f"{count} steps take {needed_s:.1f} s: raise --budget"
            )
        return steps

    def close(self) -> None:
        """End it: nothing is left behind."""

    def _make_step(self) -> StepDone:
        place = self._made - len(self._warmup_s)
        time_s = self._warmup_s[place] if place < 0 else self._times_s[place % len(self._times_s)]
        self._made += 1
        return StepDone(step=self._made, epoch=1, time_s=time_s, samples=self._samples, loss=0.0)
