"""Step times of a plan with several batches, as its trials of different rounds show them."""

from __future__ import annotations

import pytest

from planner.plans.step_times import fit_measured_steps
from tests.planner.trials.raced_turns import finished


def test_batches_of_slow_rounds_lie_on_the_line_of_the_others():
    """The story: whole batches were timed in the final, on a machine that was slower by then, and
    shares of unequal hosts were worked out with a line between two levels of it."""
    slowness = {1: 1.0, 2: 1.0, 3: 1.0, 7: 1.0, 8: 1.2, 9: 1.3}
    early = finished(32, {n: 0.52 * slowness[n] for n in (1, 2, 3)})
    late = finished(128, {n: 1.48 * slowness[n] for n in (7, 8, 9)}, drift=1.2)
    found = fit_measured_steps(late.plan, [early, late])
    assert found is not None
    assert [point.step_s for point in found.points] == pytest.approx([0.52, 1.48])
    assert found.step_time.fixed_s == pytest.approx(0.2)
    assert found.step_time.per_sample_s == pytest.approx(0.01)


def test_no_step_counts_as_shorter_or_longer_than_the_turns_of_its_plan_were():
    """Others slow the plan beside it tenfold in some rounds, and this one not at all."""
    busy = finished(32, {4: 0.80, 5: 0.81, 6: 0.79}, drift=3.0)
    quiet = finished(64, {1: 1.60, 2: 1.62}, drift=0.3)
    found = fit_measured_steps(busy.plan, [quiet, busy])
    assert found is not None
    assert [point.step_s for point in found.points] == [0.79, 1.62]
