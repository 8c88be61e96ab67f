"""Accumulation: a step adds up the gradients of passes, each as large as a step of a plan.

So a step can have more samples than a plan was measured with, and computes no more of them at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from launch.plan import Plan
from planner.plans.measured_steps import MeasuredSteps


def count_passes(batch: int, plans: Sequence[Plan]) -> int:
    """Count the passes that a step of all nodes takes for so many samples.

    A pass has the batches of the plans of all nodes.
    """
    return -(-batch // sum(plan.node_batch for plan in plans))


def accumulate_steps(steps: MeasuredSteps, passes: int) -> MeasuredSteps:
    """Give the steps of so many passes: they take as many times as long, in the memory of one pass.

    The update, which is made once, is counted in each pass: a little more time than is needed.
    """
    line = steps.step_time
    return MeasuredSteps(
        step_time=replace(line, fixed_s=line.fixed_s * passes),
        points=tuple(
            replace(point, node_batch=point.node_batch * passes, step_s=point.step_s * passes)
            for point in steps.points
        ),
    )
