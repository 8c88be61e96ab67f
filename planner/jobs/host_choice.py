"""Choice of the hosts of a training: which take part, with which share of the global batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from launch.reports import Noted, Warned
from launch.shares import NodeLimits
from planner.cluster.links import MeasuredLinks
from planner.cluster.node_choice import NodeChoice, choose_nodes
from planner.cluster.prediction import ClusterNode
from planner.cluster.sync_cost import SyncCostModel
from planner.jobs.batch_limit import is_memory_limited
from planner.jobs.launch_request import LaunchRequest
from planner.jobs.making import NodePlan
from planner.trials.reports import Listener


def choose_hosts(
    request: LaunchRequest,
    shares: Mapping[str, int],
    plans: Sequence[NodePlan],
    links: MeasuredLinks | None,
    listener: Listener,
) -> NodeChoice:
    """Choose the hosts that are fastest together; all of them where the user wants that.

    ``shares`` are a checkpoint's, by host. The listener is told what is kept of them, and what the
    choice leaves out of account.

    Raises:
        InvalidPlanError: The hosts cannot take the global batch.
    """
    nodes, untried = cluster_nodes(plans, request.global_batch)
    gradient_bytes = largest_gradients(plans)
    fixed = fix_shares(nodes, shares)
    if fixed is not None:
        listener(Noted(message=_describe_fixed_shares(nodes, fixed)))
    elif shares:
        line = "shares are given anew: a host or a plan of the checkpoint is another one now"
        listener(Noted(message=line))
    if untried:
        line = (
            f"--global-batch {request.global_batch} is more than was tried on "
            f"{', '.join(untried)}: memory may not suffice there"
        )
        listener(Warned(message=line))
    if gradient_bytes is None and links is not None and len(plans) > 1:
        line = (
            "the plans do not say how large the gradients are, as those of older versions: tune "
            "again, so that the network is counted"
        )
        listener(Warned(message=line))
    cost = None
    if links is not None and links.links:
        cost = SyncCostModel(links, wire=request.wire, all_reduce=request.all_reduce)
    return choose_nodes(
        nodes if fixed is None else fixed,
        cost,
        gradient_bytes,
        global_batch=request.global_batch,
        all_hosts=request.all_hosts or fixed is not None,
    )


def largest_gradients(plans: Sequence[NodePlan]) -> int | None:
    """Give the size of all gradients in bytes; ``None`` where the plans do not say."""
    sizes = [p.stored.gradient_bytes for p in plans if p.stored.gradient_bytes is not None]
    return max(sizes, default=None)


def cluster_nodes(
    plans: Sequence[NodePlan], global_batch: int | None
) -> tuple[list[ClusterNode], list[str]]:
    """Give what shares are worked out from, and hosts that may have to take more than was tried.

    These are hosts whose limit is only what was tried, not memory, and only where the user wants a
    global batch that the limits do not allow.
    """
    nodes = [plan.cluster_node() for plan in plans]
    if global_batch is None or sum(node.limits.max_batch or 0 for node in nodes) >= global_batch:
        return nodes, []
    untried = [plan.host for plan in plans if not is_memory_limited(plan.plan, plan.steps)]
    return [
        replace(node, limits=replace(node.limits, max_batch=None)) if node.host in untried else node
        for node in nodes
    ], untried


def fix_shares(nodes: Sequence[ClusterNode], shares: Mapping[str, int]) -> list[ClusterNode] | None:
    """Give the nodes that have a share, each able to take that one alone.

    ``None`` where there is no share, or one that its host cannot take: it is not there, or its plan
    is another one by now.
    """
    limits = {node.host: node.limits for node in nodes}
    if not shares or not shares.keys() <= limits.keys():
        return None
    if not all(limits[host].allow(share) for host, share in shares.items()):
        return None
    return [
        replace(node, limits=NodeLimits(min_batch=share, max_batch=share))
        for node in nodes
        if (share := shares.get(node.host))
    ]


def _describe_fixed_shares(nodes: Sequence[ClusterNode], fixed: Sequence[ClusterNode]) -> str:
    """Describe shares that a checkpoint has fixed, and how other hosts would get one."""
    line = "hosts and shares are those of the checkpoint"
    used = {node.host for node in fixed}
    if left := [node.host for node in nodes if node.host not in used]:
        batch = sum(node.limits.min_batch for node in fixed)
        line += f", without {', '.join(left)}: --global-batch {batch} shares anew over all hosts"
    return line
