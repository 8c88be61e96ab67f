"""Failures of trials: which plans are likely to fail as well."""

from __future__ import annotations

from collections import Counter

from launch.plan import Plan
from planner.search.terms import kind_of, settings_of
from planner.trials.result import Outcome, TrialResult

_DOUBT = 0.25
"""Chance of a setting that never worked, after each failure / its chance before."""


class FailureCounts:
    """Counts how often plans with some setting worked, on each kind of device."""

    def __init__(self) -> None:
        self._worked: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()

    def add(self, result: TrialResult) -> None:
        """Take note of a trial."""
        if result.outcome is Outcome.NO_TIME:
            return
        counter = self._failed if result.outcome.has_failed else self._worked
        counter.update(_causes(result.plan))

    def chance(self, plan: Plan) -> float:
        """Give the chance that a plan works: that of its most doubtful setting.

        A setting that has worked is doubted little for failures beside others; one that never has
        is doubted more with each failure.
        """
        return min(map(self._chance_with, _causes(plan))) if self._failed else 1.0

    def _chance_with(self, cause: str) -> float:
        worked, failed = self._worked[cause], self._failed[cause]
        return (worked + 1) / (worked + failed + 1) if worked else _DOUBT**failed


def _causes(plan: Plan) -> list[str]:
    kind = kind_of(plan)
    settings = [f"{kind}: {name}={value}" for name, value in settings_of(plan).items()]
    return [f"{plan.strategy} on {kind}", f"{plan.strategy} {plan.processes}", *settings]
