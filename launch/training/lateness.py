"""Which plans may leave their updates to the next step? Known without torch, for predictions."""

from __future__ import annotations

from launch.plan import Plan


def updates_late(plan: Plan) -> bool:
    """Whether `launch.training.late_update` sees how a plan's steps use parameters."""
    return set(plan.devices) == {"cpu"} and not plan.compile
