"""Head of an exported script: which plan it is, and what the user's own script has to do."""

from __future__ import annotations

from launch.plan import Plan
from planner.plans.stored_plan import StoredPlan
from planner.quantities import printable
from planner.report.plan_line import describe_plan


def head_lines(stored: StoredPlan) -> list[str]:
    """Give lines of comments, without their sign.

    Names are the user's, or a plan file's: control characters, which could end a comment, are
    shown as escapes.
    """
    return [
        printable(line)
        for line in (
            f"Plan {stored.id} of ddlplan: {describe_plan(stored.plan)}",
            f"Measured with use case {stored.use_case} on {stored.node}.",
        )
    ]


def settings_left(plan: Plan) -> list[str]:
    """Give the settings of a plan that only ddlplan itself applies, a phrase each."""
    stages, replicas = plan.processes // plan.replicas, plan.replicas
    phrases = {
        f"the model is cut into {stages} stages": stages > 1,
        f"{replicas} replicas in one process, each with a Python thread": plan.processes < replicas,
        f"input={plan.input}": plan.input != "files",
        "onednn_linear": plan.onednn_linear,
        "cuda_graph": plan.cuda_graph,
    }
    return [phrase for phrase, is_so in phrases.items() if is_so]
