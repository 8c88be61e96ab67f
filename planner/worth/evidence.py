"""Evidence of a study: the latest measurement of each plan, and ratios between two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from statistics import NormalDist

from launch.plan import Plan
from planner.trials.comparison import PairNoise, compare_results
from planner.trials.result import TrialResult
from planner.tuning.study import StoredTrial
from probes.timing import NORMAL_95, Interval


class Evidence:
    """Measured plans of a study up to some moment: later trials belong to later searches."""

    def __init__(self, trials: Sequence[StoredTrial], until: datetime) -> None:
        self.trials = [trial for trial in trials if trial.created_at <= until]
        self._latest: dict[Plan, TrialResult] = {}
        for trial in self.trials:
            result = trial.result
            if result.outcome.has_times and result.measurement is not None:
                self._latest[result.plan] = result
        self._noise = PairNoise.of_results(list(self._latest.values()))

    @property
    def elapsed_s(self) -> float:
        """Time of all trials, failed ones included."""
        return math.fsum(trial.result.elapsed_s for trial in self.trials)

    def latest(self) -> list[TrialResult]:
        """Give the latest measurement of each plan."""
        return list(self._latest.values())

    def find(self, plan: Plan) -> TrialResult | None:
        """Give the latest measurement of a plan."""
        return self._latest.get(plan)

    def speed_ratio(self, plan: Plan, other: Plan) -> Interval | None:
        """Give samples per second of the second plan / of the first; ``None`` if not measured."""
        one, two = self.find(plan), self.find(other)
        if one is None or two is None:
            return None
        if (paired := self.raced_ratio(plan, other)) is not None:
            return paired
        # No round in common: by their rates without the machine's drift.
        below, above = one.throughput_samples_per_s(), two.throughput_samples_per_s()
        return None if below is None or above is None else ratio_of_rates(below, above)

    def raced_ratio(self, plan: Plan, other: Plan) -> Interval | None:
        """Give the ratio of speeds from rounds that both plans ran in; ``None`` without any."""
        one, two = self.find(plan), self.find(other)
        if one is None or two is None:
            return None
        return compare_results(one, two, noise=self._noise)


def ratio_of_rates(below: Interval, above: Interval) -> Interval:
    """Give the second rate / the first, where they were not measured side by side.

    The two intervals are joined by their distances on the log scale, as two sides of a right
    angle (Zou and Donner, "Construction of confidence limits about effect measures", 2008).
    """
    centre = above.median / below.median
    down = math.hypot(math.log(above.median / above.low), math.log(below.high / below.median))
    up = math.hypot(math.log(above.high / above.median), math.log(below.median / below.low))
    return Interval(
        median=centre,
        low=centre * math.exp(-down),
        high=centre * math.exp(up),
        count=min(above.count, below.count),
    )


def chance_above_one(value: Interval) -> float:
    """Give how probable it is that a ratio is above 1, taking its logarithm for normal."""
    deviation = math.log(value.high / value.low) / (2 * NORMAL_95)
    if deviation == 0:
        return float(value.median > 1)
    return NormalDist().cdf(math.log(value.median) / deviation)
