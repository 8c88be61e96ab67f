"""Check of a script's plan: what can be set from outside of a script, and what cannot."""

from __future__ import annotations

from dataclasses import fields

from launch.errors import InvalidPlanError
from launch.plan import Plan
from launch.scripts.environment import check_options

_FROM_OUTSIDE = {
    *("strategy", "node_batch", "processes", "threads_per_process", "loader_workers"),
    *("allocator", "devices", "options"),
}
"""Settings that the command or its environment can hold. Any other is the script's own."""


def check_script_plan(plan: Plan) -> None:
    """Check that a plan asks of a script only what can be set from outside.

    Raises:
        InvalidPlanError: It asks for more.
    """
    for each in fields(plan):
        value = getattr(plan, each.name)
        if each.name not in _FROM_OUTSIDE and value != each.default:
            raise InvalidPlanError(
                f"strategy={plan.strategy} and {each.name}={value}: only the script itself can do "
                f"that: use {each.name}={each.default}"
            )
    check_options(plan)
