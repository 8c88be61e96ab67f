"""How is a plan said in one short line?"""

from __future__ import annotations

from launch.plan import Plan


def describe_plan(plan: Plan) -> str:
    """Say a plan in one line: what differs from the plainest plan of its strategy.

    >>> describe_plan(Plan(strategy="processes", node_batch=64, processes=2, replicas=2))
    'processes 2x1 batch 64'
    """
    said = (
        (f"{plan.strategy} {layout(plan)}", True),
        (f"in {plan.replicas} replicas", has_group_replicas(plan)),
        (f"batch {plan.node_batch}", True),
        (f"in {plan.micro_batches}", plan.micro_batches > 1),
        (plan.memory_format, plan.memory_format != "contiguous"),
        (plan.input, plan.input == "cache"),
        ("data on the GPU", plan.input == "device"),
        (f"{plan.loader_workers} loaders", plan.loader_workers > 0),
        (plan.allocator, plan.allocator != "default"),
        ("fused", plan.fused_optimizer),
        (plan.precision, plan.precision != "fp32"),
        ("compiled", plan.compile),
        ("graph", plan.cuda_graph),
        (",".join(plan.devices), set(plan.devices) != {"cpu"}),
    )
    return " ".join([text for text, holds in said if holds] + options(plan))


def layout(plan: Plan) -> str:
    """Give ``parts x threads of each``, the parts being processes or replicas."""
    parts = max(plan.processes, plan.replicas)
    return f"{parts}x{plan.threads // parts}"


def has_group_replicas(plan: Plan) -> bool:
    """Tell whether several processes share a replica, so that `layout` does not say how many."""
    return 1 < plan.replicas < plan.processes


def options(plan: Plan) -> list[str]:
    """Give the settings that only the plan's strategy knows."""
    return [f"{name}={value}" for name, value in sorted(plan.options.items())]
