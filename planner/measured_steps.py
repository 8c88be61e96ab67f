"""How long does a step of a plan take with other batches? A line through a few measured ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from launch.plan import Plan
from launch.shares import StepTime, fit_step_time, smallest_batch
from planner.result import Outcome, TrialResult

_FIXED_S_PER_BYTE = 4e-10
"""Of gradients: weights are read forward and backward, gradients written, and the update reads and
writes weights, gradients and momentum: eight times their size, at 20 GB/s of a core."""

_LARGEST_FIXED = 0.5
"""Of a step: what is assumed must not outweigh what was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPoint:
    """A plan, measured with one batch."""

    node_batch: int
    step_s: float
    """Median."""

    peak_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSteps:
    """Time of a step as a line over its samples, with what it was laid through."""

    step_time: StepTime
    points: tuple[StepPoint, ...]
    """One a batch, the smallest first; at least one."""

    @property
    def largest_batch(self) -> int:
        """The largest batch that is known to run."""
        return self.points[-1].node_batch

    def to_json(self) -> dict[str, Any]:
        """Give the line and its points as plain values that JSON can hold."""
        points = [
            {
                "node_batch": point.node_batch,
                "step_s": point.step_s,
                "peak_memory_bytes": point.peak_memory_bytes,
            }
            for point in self.points
        ]
        return {**self.step_time.to_json(), "points": points}


def steps_from_points(points: Sequence[StepPoint]) -> MeasuredSteps:
    """Lay the line through at least one point; of points of one batch the last counts."""
    latest = {point.node_batch: point for point in points}
    ordered = tuple(latest[batch] for batch in sorted(latest))
    line = fit_step_time([(point.node_batch, point.step_s) for point in ordered])
    return MeasuredSteps(step_time=line, points=ordered)


def measured_steps(plan: Plan, results: Sequence[TrialResult]) -> MeasuredSteps | None:
    """Gather what trials show of a plan with any batch; ``None`` where they show nothing.

    Args:
        plan: The plan; its own batch does not matter.
        results: Trials in the order in which they ended.
    """
    points = [
        StepPoint(
            node_batch=result.plan.node_batch,
            step_s=result.measurement.median_s,
            peak_memory_bytes=result.peak_memory_bytes,
        )
        for result in results
        if result.outcome is Outcome.OK and result.measurement is not None
        if same_but_batch(result.plan, plan)
    ]
    return steps_from_points(points) if points else None


def with_fixed_part(steps: MeasuredSteps, gradient_bytes: int) -> MeasuredSteps:
    """Give steps that were measured with one batch alone the fixed part that they must have.

    For plans on a CPU, where reading the weights and updating them takes its time in every step.
    """
    (point,) = steps.points
    fixed_s = min(_FIXED_S_PER_BYTE * gradient_bytes, _LARGEST_FIXED * point.step_s)
    line = StepTime(fixed_s=fixed_s, per_sample_s=(point.step_s - fixed_s) / point.node_batch)
    return replace(steps, step_time=line)


def batches_to_time(plan: Plan, results: Sequence[TrialResult]) -> list[Plan]:
    """Give a plan with the smaller batches that its line needs, and trials have not shown yet.

    A quarter and half: a node's share of a job with others may be as small. The quarter first: it
    takes least time, and a line is surest between ends that lie far apart.
    """
    measured = measured_steps(plan, results)
    known = {point.node_batch for point in measured.points} if measured else set()
    wanted = (plan.node_batch // 4, plan.node_batch // 2)
    least = smallest_batch(plan)
    return [replace(plan, node_batch=n) for n in wanted if n >= least and n not in known]


def same_but_batch(plan: Plan, other: Plan) -> bool:
    """Tell whether two plans differ in nothing but their batch."""
    has_room = smallest_batch(plan) <= other.node_batch
    return has_room and replace(plan, node_batch=other.node_batch) == other
