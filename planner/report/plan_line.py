"""How is a plan said in one short line?"""

from __future__ import annotations

from launch.plan import Plan


def describe_plan(plan: Plan) -> str:
    """Say a plan in one line: what differs from the plainest plan of its strategy.

    >>> describe_plan(Plan(strategy="processes", node_batch=64, processes=2, replicas=2))
    'processes 2x1 batch 64'
    """
    parts = [f"{plan.strategy} {_layout(plan)}", f"batch {plan.node_batch}"]
    if plan.micro_batches > 1:
        parts.append(f"in {plan.micro_batches}")
    if plan.memory_format != "contiguous":
        parts.append(plan.memory_format)
    if plan.allocator != "default":
        parts.append(plan.allocator)
    if plan.loader_workers:
        parts.append(f"{plan.loader_workers} loaders")
    if plan.precision != "fp32":
        parts.append(plan.precision)
    if plan.devices[0] != "cpu":
        parts.append(plan.devices[0])
    return " ".join(parts)


def _layout(plan: Plan) -> str:
    """Give ``parts x threads of each``, the parts being processes or replicas."""
    parts = max(plan.processes, plan.replicas)
    return f"{parts}x{plan.threads // parts}"
