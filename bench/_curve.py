"""Curve of a search: how good the plan is that it would choose, by the time that it has taken."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Curve:
    """True time of the plan that would be chosen, over the seconds of a search."""

    points: tuple[tuple[float, float], ...]
    trials: int

    tried_s: float
    """That of the best plan that was tried."""

    claim: tuple[float, bool] | None = None
    """Half width of the claimed speedup in percent, and whether the true one lies within."""

    def at(self, second: float) -> float:
        """Give the time of the plan that would be chosen then."""
        return [time_s for moment_s, time_s in self.points if moment_s <= second][-1]

    def first_below(self, time_s: float) -> float:
        """Give the second from which the choice stays below a time; infinite where it does not."""
        above = [i for i, (_, chosen_s) in enumerate(self.points) if chosen_s > time_s]
        after = above[-1] + 1 if above else 0
        return self.points[after][0] if after < len(self.points) else math.inf
