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

    Args:
        batch: Samples of a step.
        plans: Of the nodes; a pass has the batches of all of them.
    """
    return -(-batch // sum(plan.node_batch for plan in plans))


def accumulate_plan(plan: Plan, passes: int) -> Plan:
    """Give the plan whose step is so many passes of a plan, each in its own micro-batches.

    A pipeline gets the schedule 1F1B: with the other one, activations of all passes are kept.
    """
    micro_batches = plan.micro_batches * passes
    options = dict(plan.options)
    if passes > 1 and "schedule" in options and micro_batches >= plan.processes // plan.replicas:
        options["schedule"] = "1f1b"
    return replace(
        plan,
        node_batch=plan.node_batch * passes,
        micro_batches=micro_batches,
        options=options,
    )


def accumulate_steps(steps: MeasuredSteps, passes: int) -> MeasuredSteps:
    """Give the steps of that plan: they take as many times as long, in the memory of one pass.

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
