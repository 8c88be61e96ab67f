"""Check of a script's plan: what can be set from outside of a script, and what cannot."""

from __future__ import annotations

import shlex
from dataclasses import fields

from launch.errors import InvalidPlanError, ScriptError
from launch.plan import Plan
from launch.scripts.environment import check_options, placeholder_values
from launch.scripts.program import Program
from planner.scripts.naming import PREFIX, STRATEGY, is_script
from probes import codec

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


def check_command(use_case: str, plan: Plan) -> None:
    """Check that a plan of somebody else's has a command, and what that leaves open.

    Raises:
        InvalidPlanError: It has none, or one that nothing can start with this plan.
    """
    named = f"use_case={codec.shorten(use_case)}"
    if not is_script(use_case) or plan.strategy != STRATEGY:
        raise InvalidPlanError(
            f"strategy={plan.strategy} and {named}: a command has both strategy={STRATEGY} and "
            f"a use_case that begins with {PREFIX}"
        )
    try:
        program = Program(arguments=tuple(shlex.split(use_case.removeprefix(PREFIX))))
        if not program.fill(placeholder_values(program, plan)):
            raise ScriptError("name a program")
    except (ScriptError, ValueError) as error:  # ValueError: a quote is left open
        raise InvalidPlanError(f"{named}: {error}") from error
