"""Pool of plans that a search looks at: what each may gain, and by second of its trial."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from launch.plan import Plan
from planner.search.effects import Array, Effects
from planner.search.space import DrawnPlan, PlanSpace


class PlanPool:
    """Plans that may be searched for, each with what it promises.

    Args:
        effects: What was learned from trials.
        best_log_s: Logarithm of the time per sample of the best plan so far.
        trial_s: Gives the time of a plan's trial from its time per sample, in seconds.
        chance: Gives the chance that a plan works.
        least_batch: Plans with a smaller one are left out.

    Attributes:
        speed: Expected logarithm of each plan's samples per second, by its key; minus infinity
            where it must not be tried.
        gain: Expected improvement of each, times the chance that it works.
        per_second: The same over the time of its trial.
    """

    def __init__(
        self,
        effects: Effects,
        best_log_s: float,
        trial_s: Callable[[Plan, float], float],
        chance: Callable[[Plan], float],
        least_batch: int,
    ) -> None:
        self._effects = effects
        self.best_log_s = best_log_s
        self._trial_s = trial_s
        self._least_batch = least_batch
        self._chance = chance
        self._drawn: dict[Plan, DrawnPlan] = {}
        self._expanded: set[Plan] = set()
        self.speed: dict[Plan, float] = {}
        self.gain: dict[Plan, float] = {}
        self.per_second: dict[Plan, float] = {}

    def add(self, every: Sequence[DrawnPlan]) -> None:
        """Add plans; those that it has already change nothing."""
        new = list(
            {
                drawn.plan: drawn
                for drawn in every
                if drawn.plan not in self._drawn and drawn.plan.node_batch >= self._least_batch
            }.values()
        )
        if not new:
            return
        means, deviations = self._effects.predict([drawn.plan for drawn in new])
        gains = expected_improvement(self.best_log_s - means, deviations)
        for drawn, mean, gain in zip(new, means, gains, strict=True):
            self._drawn[drawn.plan] = drawn
            chance = self._chance(drawn.plan)
            self.speed[drawn.plan] = -float(mean) if chance > 0 else -math.inf
            self.gain[drawn.plan] = float(gain) * max(chance, 1e-3)
            trial_s = self._trial_s(drawn.plan, math.exp(min(mean, 50.0)))
            self.per_second[drawn.plan] = self.gain[drawn.plan] / trial_s

    def expand(self, space: PlanSpace, every: Sequence[DrawnPlan]) -> bool:
        """Add the neighbours of plans; tell whether any of the plans was new here."""
        left = [drawn for drawn in every if drawn.plan not in self._expanded]
        self._expanded.update(drawn.plan for drawn in left)
        self.add([other for drawn in left for other in space.neighbours(drawn)])
        return bool(left)

    def expected_log_s(self) -> float:
        """Give the expected time of the best plan, tried or not."""
        return min(self.best_log_s, -max(self.speed.values()))

    def ranked(self, score: dict[Plan, float]) -> list[DrawnPlan]:
        """Give the plans by what they promise, then by their expected time."""
        order = sorted(self._drawn, key=lambda key: (-score[key], -self.speed[key]))
        return [self._drawn[key] for key in order]


def expected_improvement(lead: Array, deviation: Array) -> Array:
    """Give the mean of ``max(0, lead + deviation * normal)``.

    Args:
        lead: By how much the logarithm of a time is expected to be below the best.
        deviation: Of that logarithm.
    """
    scaled = lead / deviation
    density = np.exp(-0.5 * scaled**2) / math.sqrt(2 * math.pi)
    below = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in scaled])
    return np.asarray(deviation * (scaled * below + density), dtype=np.float64)
