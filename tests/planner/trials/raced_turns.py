"""Plans with the times of their turns, as races leave them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from launch.plan import Plan
from planner.trials.result import Outcome, Role, TrialResult
from probes.disturbance import Disturbance
from probes.timing import DisturbedTurn, Measurement


@dataclass(frozen=True)
class Turns:
    """A plan and its times."""

    plan: Plan
    measurement: Measurement


def turns(batch: int, times_s: Mapping[int, float]) -> Turns:
    """Make a plan that is known by its batch, with the mean step of each round."""
    measurement = Measurement(samples_s=tuple(times_s.values()), rounds=tuple(times_s))
    return Turns(Plan(strategy="sequential", node_batch=batch), measurement)


def beside_others(quiet_s: float, busy_s: float, *, quiet: Collection[int]) -> Turns:
    """Make a plan with a turn in each of 40 rounds, disturbed by others in all but the quiet ones.

    Args:
        quiet_s: Its mean step in these.
        busy_s: The same in the others.
        quiet: Rounds.
    """
    made = turns(1, {number: quiet_s if number in quiet else busy_s for number in range(40)})
    busy = Disturbance(others_cores=1.0)
    disturbed = tuple(
        DisturbedTurn(round=number, disturbance=busy, was_repeated=False)
        for number in range(40)
        if number not in quiet
    )
    return replace(made, measurement=replace(made.measurement, disturbed=disturbed))


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
