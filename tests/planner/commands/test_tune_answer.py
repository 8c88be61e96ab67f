"""What a search says of the plan it has found."""

from __future__ import annotations

from launch.plan import Plan
from planner.commands.tune import describe_comparison
from planner.plans.stored_plan import ComparedPlan
from probes.timing import Interval

DEFAULTS = Plan(strategy="threads", node_batch=32, threads_per_process=2)
COMPARED = ComparedPlan(
    name="defaults",
    plan=DEFAULTS,
    throughput_samples_per_s=8.7,
    speedup=Interval(median=1.0, low=1.0, high=1.0, count=1),
)


def test_defaults_that_nothing_beats_are_not_compared_with_themselves():
    """They were "1.00 times (1.00 to 1.00) as fast"."""
    said = describe_comparison(COMPARED, DEFAULTS)
    assert said == "the best plan itself: nothing faster was found"
    other = Plan(strategy="sequential", node_batch=32)
    assert describe_comparison(COMPARED, other).startswith("1.00 times (1.00 to 1.00) as fast")
