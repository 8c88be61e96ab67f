"""What does `ddlplan probe --hosts` do? Every node looks at itself, and all at their network."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from launch.errors import HostUnreachableError
from launch.hosts.checked import HostsChecked
from launch.hosts.file import HostList
from planner.commands.on_hosts import check_together, failure_json, show_network, show_table
from planner.links import MeasuredLinks
from planner.output import Output
from planner.reach import Reach
from planner.report.nodes import PROBE_COLUMNS, probe_row
from planner.report.together_lines import TogetherLines
from planner.software import current_software
from planner.store import Store
from planner.together.campaign import Campaign
from planner.together.gathering import Gathering, LazyStore, NodeState
from planner.together.task import Purpose

_MESSAGE_BYTES = (4 * 2**20, 64 * 2**20)
"""Gradients of a small and of a large model, where there is none to ask."""

_MOST_MODELS = 3


def probe_hosts(listed: HostList, reach: Reach, db: str, out: Output, *, quick: bool) -> None:
    """Find out what the hosts of a file are, and what their network can do.

    Raises:
        HostUnreachableError: A host failed its checks, or none could be probed.
    """
    Store.check_place(db)
    checked = check_together(listed, reach, out)
    with LazyStore(db) as store:
        names = [host.name for host in checked.ranked]
        with TogetherLines(out, names, f"probing {len(names)} nodes") as lines:
            nodes = {name: NodeState(host=name) for name in names}
            gathering = Gathering(store, current_software(), lines, nodes=nodes)
            Campaign(
                Purpose.PROBE,
                checked,
                reach,
                gathering,
                is_quick=quick,
                message_bytes=(*_MESSAGE_BYTES, *_trained_bytes(store, checked)),
            ).run()
    for node in nodes.values():
        for warning in () if node.hardware is None else node.hardware.warnings:
            out.warn(f"{node.host}: {warning}")
    if all(node.hardware is None for node in nodes.values()):
        host, node = next(iter(nodes.items()))
        raise HostUnreachableError(f"{host}: {_remark(node) or 'it was not heard of'}")
    if gathering.links is None and len(nodes) > 1 and not quick:
        out.warn("the network was not measured: repeat the command")
    rows = [probe_row(node.host, node.hardware, _remark(node)) for node in nodes.values()]
    show_table(rows, PROBE_COLUMNS, out)
    show_network(gathering, out)
    out.finish([_node_json(node, gathering.links) for node in nodes.values()])


def _trained_bytes(store: LazyStore, checked: HostsChecked) -> list[int]:
    """Give how large the gradients are that these hosts have plans for, the largest ones."""
    kept = store.find()
    facts = [checked.facts[host.name].hardware for host in checked.ranked]
    fingerprints = {node.fingerprint() for node in facts if node is not None}
    plans = [] if kept is None else kept.plans()
    found = {plan.gradient_bytes or 0 for plan in plans if plan.fingerprint in fingerprints}
    return sorted(found - {0}, reverse=True)[:_MOST_MODELS]


def _remark(node: NodeState) -> str:
    return "" if node.failure is None else node.failure.message


def _node_json(node: NodeState, measured: MeasuredLinks | None) -> dict[str, Any]:
    """Give a node as `probe` does without hosts, with its links."""
    links = () if measured is None else measured.links
    own = [link for link in links if node.host in (link.first, link.second)]
    found = {}
    if node.hardware is not None:
        found = node.hardware.to_json() | {"fingerprint": node.hardware.fingerprint()}
    return {
        "host": node.host,
        "error": failure_json(node.failure),
        **found,
        "links": [
            {
                "to": link.second if link.first == node.host else link.first,
                "latency_s": link.latency_s,
                "bytes_per_s": link.bytes_per_s,
            }
            for link in own
        ],
        "all_reduces": [] if measured is None else _sums_json(node.host, measured),
    }


def _sums_json(host: str, measured: MeasuredLinks) -> list[dict[str, Any]]:
    """Give what summing over all hosts takes, and what of it is this one's processor time."""
    if host not in measured.hosts:
        return []
    rank = measured.hosts.index(host)
    return [
        asdict(one) | {"cpu_s": one.cpu_s[rank], "interrupts_s": one.interrupts_s[rank]}
        for one in measured.sums
    ]
