"""Check of a script's plan: what can be set from outside of a script, and what cannot."""

from __future__ import annotations

from launch.errors import InvalidPlanError
from launch.plan import Plan
from launch.scripts.environment import check_options
from launch.strategies._rules import require


def check_script_plan(plan: Plan) -> None:
    """Check that a plan asks of a script only what can be set from outside.

    Raises:
        InvalidPlanError: It asks for more.
    """
    require(plan, replicas=1, micro_batches=1)
    plain = Plan(strategy=plan.strategy, node_batch=plan.node_batch)
    names = ("precision", "memory_format", "input", "fused_optimizer", "onednn_linear", "compile")
    for name in (*names, "cuda_graph", "lr_scaling"):
        if (value := getattr(plan, name)) != getattr(plain, name):
            raise InvalidPlanError(
                f"strategy={plan.strategy} and {name}={value}: only the script itself can do that: "
                f"use {name}={getattr(plain, name)}"
            )
    check_options(plan)
