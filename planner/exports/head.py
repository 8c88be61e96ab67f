"""Head of an exported script: which plan it is, and what the user's own script has to do."""

from __future__ import annotations

from collections.abc import Sequence

from launch.plan import Plan
from launch.process_environment.openmp import WAIT_POLICY
from planner.plans.stored_plan import HERE, StoredPlan
from planner.quantities import printable
from planner.report.plan_line import describe_plan
from planner.report.plans import GENERATED
from planner.scripts.naming import command_for, describe_trained, is_script, measuring_options


def head_lines(stored: StoredPlan, stale_reasons: Sequence[str] = ()) -> list[str]:
    """Give lines of comments, without their sign.

    Among them is that a plan is stale, and that its data were made up.

    Names are the user's, or a plan file's: control characters, which could end a comment, are
    shown as escapes.
    """
    what = stored.use_case
    named = describe_trained(what) if is_script(what) else f"use case {what}"
    lines = [
        f"Plan {stored.id} of ddlplan: {describe_plan(stored.plan)}",
        f"Measured with {named} on {stored.node}.",
    ]
    if stored.is_generated:
        lines.append(f"Its data were {GENERATED}.")
    if stale_reasons:
        lines += [
            f"STALE where it was exported: {'; '.join(stale_reasons).replace(HERE, 'there is')}.",
            "Its times may not hold any more, and ddlplan launch refuses it without --allow-stale.",
            f"Search again on {stored.node}: "
            + command_for(what, "tune", *measuring_options(stored.plan)),
        ]
    return [printable(line) for line in lines]


def settings_of_script(plan: Plan) -> list[str]:
    """Give the settings of a plan that no command line can set: a script of one's own does."""
    phrases = {
        f"batch {plan.node_batch}": True,
        f"in {plan.micro_batches} micro-batches": plan.micro_batches > 1,
        plan.memory_format: plan.memory_format != "contiguous",
        plan.precision: plan.precision != "fp32",
        f"{plan.loader_workers} loader workers": plan.loader_workers > 0,
        f"learning rate scaling {plan.lr_scaling}": plan.lr_scaling != "none",
        "fused optimizer": plan.fused_optimizer,
        "torch.compile": plan.compile,
        **{f"{name}={value}": name != WAIT_POLICY for name, value in plan.options.items()},
    }
    return [phrase for phrase, is_so in phrases.items() if is_so] + settings_left(plan)


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
