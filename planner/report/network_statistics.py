"""Network statistics of a training: bytes and waiting time per step, changes of shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from launch.reports import SharesChanged
from planner.jobs.training import NetworkUse
from planner.quantities import format_bytes


def network_line(network: NetworkUse) -> str | None:
    """Give the statistics as a line; ``None`` where nothing went over a network."""
    if not network.steps:
        return None
    sent = format_bytes(network.sent_bytes // network.steps)
    share = 100 * network.waited_s / network.steps_s if network.steps_s else 0.0
    return f"{sent} sent by each node in a step, {share:.1f} % of the time waited for the sum"


def network_json(network: NetworkUse) -> dict[str, Any] | None:
    """Give the same as plain values for JSON."""
    if not network.steps:
        return None
    return {
        "steps": network.steps,
        "sent_bytes_per_step": network.sent_bytes / network.steps,
        "waited_s_per_step": network.waited_s / network.steps,
    }


def format_shares_change(changed: SharesChanged, hosts: Sequence[str]) -> str:
    """Describe the shares that the nodes take from now on."""
    shares = ", ".join(
        f"{host} {batch}" for host, batch in zip(hosts, changed.node_batches, strict=True)
    )
    return f"step {changed.step}: a node's speed has changed; from here on {shares} samples a step"
