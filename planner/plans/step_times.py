"""Step times of a plan with several batches, from trials, and the batches still to be timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from launch.plan import Plan
from launch.shares import NodeLimits
from planner.plans.measured_steps import MeasuredSteps, StepPoint, steps_from_points
from planner.trials.result import Outcome, TrialResult
from probes.timing import Measurement


def fit_measured_steps(plan: Plan, results: Sequence[TrialResult]) -> MeasuredSteps | None:
    """Gather what trials, in the order in which they ended, show of a plan with any batch.

    ``None`` where they show nothing.
    """
    points = [
        StepPoint(
            node_batch=result.plan.node_batch,
            step_s=_step_s(result.measurement),
            peak_memory_bytes=result.peak_memory_bytes,
        )
        for result in results
        if result.outcome is Outcome.OK and result.measurement is not None
        if _same_but_batch(result.plan, plan)
    ]
    return steps_from_points(points) if points else None


def _step_s(known: Measurement) -> float:
    """Give the median without the machine's drift, which differs from round to round.

    It is a time that the plan's own turns have shown: others that slow the plan beside it tenfold,
    and not this one, look like a machine that was slow for both.
    """
    return min(max(known.median_s / known.drift, min(known.samples_s)), max(known.samples_s))


def find_unmeasured_batches(plan: Plan, results: Sequence[TrialResult]) -> list[Plan]:
    """Give a plan with the smaller batches that its line needs, and trials have not shown yet.

    A quarter and half: a node's share of a job with others may be as small. The quarter first: it
    takes least time, and a line is surest between ends that lie far apart.
    """
    measured = fit_measured_steps(plan, results)
    known = {point.node_batch for point in measured.points} if measured else set()
    wanted = (plan.node_batch // 4, plan.node_batch // 2)
    least = NodeLimits.of_plan(plan).min_batch
    return [replace(plan, node_batch=n) for n in wanted if n >= least and n not in known]


def _same_but_batch(plan: Plan, other: Plan) -> bool:
    """Tell whether two plans differ in nothing but their batch."""
    has_room = NodeLimits.of_plan(plan).min_batch <= other.node_batch
    return has_room and replace(plan, node_batch=other.node_batch) == other
