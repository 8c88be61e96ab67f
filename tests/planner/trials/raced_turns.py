"""Plans with the times of their turns, as races leave them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from launch.plan import Plan
from planner.trials.result import Outcome, Role, TrialResult
from probes.timing import Measurement


@dataclass(frozen=True)
class Turns:
    """A plan and its times."""

    plan: Plan
    measurement: Measurement


def turns(batch: int, times_s: Mapping[int, float]) -> Turns:
    """Make a plan that is known by its batch, with the mean step of each round."""
    measurement = Measurement(samples_s=tuple(times_s.values()), rounds=tuple(times_s))
    return Turns(Plan(strategy="sequential", node_batch=batch), measurement)


def finished(batch: int, times_s: Mapping[int, float], *, drift: float = 1.0) -> TrialResult:
    """Make the result of a trial; without turns it was measured alone."""
    return TrialResult(
        plan=Plan(strategy="sequential", node_batch=batch),
        role=Role.SEARCH,
        outcome=Outcome.OK,
        measurement=Measurement(
            samples_s=tuple(times_s.values()) or (1.0,), rounds=tuple(times_s), drift=drift
        ),
        elapsed_s=1.0,
    )
