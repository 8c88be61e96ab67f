"""Probing of this machine or of several hosts."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from launch.errors import HostUnreachableError
from launch.hosts.findings import CheckedHosts
from launch.reports import Working
from launch.system.cache import cache_folder, make_folder
from planner.api._call_context import CallContext
from planner.cancellation import Cancellation
from planner.cluster.links import MeasuredLinks
from planner.cluster_tuning.collector import LazyStore
from planner.cluster_tuning.reports import NodeFailed
from planner.cluster_tuning.task import ClusterPurpose, ClusterTask
from planner.jobs.hosts import Hosts
from planner.quantities import format_count
from planner.store import Store, check_location
from planner.trials.machine_alone import machine_alone
from planner.trials.reports import Listener, ignore
from probes.hardware import Hardware
from probes.node import probe as probe_node

_MESSAGE_BYTES = (4 * 2**20, 64 * 2**20)
"""Gradients of a small and of a large model, where no plan has any."""

_MOST_MODELS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProbe:
    """What a probe of one node found."""

    host: str
    """As the host file names it."""

    hardware: Hardware | None
    failure: NodeFailed | None = None
    """Why there is no hardware, or no more than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What a probe found; it is in the database too."""

    nodes: tuple[NodeProbe, ...]
    """In the order of the ranks."""

    links: MeasuredLinks | None = None
    """The network between them, where it was measured."""


def probe(
    *,
    db: str = "planner.db",
    hosts: Hosts | None = None,
    quick: bool = False,
    data: Path | None = None,
    listener: Listener = ignore,
    cancellation: Cancellation | None = None,
    waits: bool = True,
) -> ProbeResult:
    """Measure what this machine, or each host and the network between them, can do.

    Example:
        >>> from planner.api import probe
        >>> result = probe(quick=True)
        >>> result.nodes[0].hardware.cpu.usable_cores > 0
        True

    Args:
        db: Database: a path, or ``postgresql+psycopg://user@host/name``.
        hosts: Where; this machine where left out.
        quick: Measure nothing, below 2 s on this machine.
        data: Folder of data whose reading is measured too, on each host.
        listener: Receives what is going on.
        cancellation: Ends the waiting, and a probe of several hosts. One of this machine runs to
            its end: 10 s at most, and 40 s more where data are measured.
        waits: Whether to wait while something else is timed on a machine, or a training runs.

    Raises:
        MachineBusyError: That is so, and ``waits`` is false.
        HostUnreachableError: A host failed its checks, or none could be probed.
        RefusedError: This is root, and the user has not allowed jobs on several hosts.
        StoreError: The database cannot be used.
        CancelledError: The end was asked for.
    """
    context = CallContext.of(hosts, db, listener, cancellation)
    context.warn_of_hazards()
    if not context.hosts.is_local:
        return _probe_hosts(context, quick=quick, data=data, waits=waits)
    # First: where it cannot be made, no database is.
    local = None if data is None else make_folder(cache_folder())
    with Store.open(db) as store:
        context.cancellation.check()
        with nullcontext() if quick else machine_alone(listener, context.cancellation, waits=waits):
            listener(Working(what="probing this machine"))
            node = probe_node(quick=quick, data=data, local=local)
        store.machines.save_probe(node)
    return ProbeResult(nodes=(NodeProbe(host=context.hosts.names[0], hardware=node),))


def _probe_hosts(
    context: CallContext, *, quick: bool, data: Path | None, waits: bool
) -> ProbeResult:
    check_location(context.db)
    checked = context.check_all()
    with LazyStore(context.db) as store:
        task = ClusterTask(
            purpose=ClusterPurpose.PROBE,
            is_quick=quick,
            data=None if data is None else str(data.absolute()),
            message_bytes=(*_MESSAGE_BYTES, *_trained_bytes(store, checked)),
            waits=waits,
        )
        doing = f"probing {format_count(len(context.hosts.machines), 'host')}"
        collector, _ = context.run_on_all(task, doing, checked, store)
    nodes = tuple(
        NodeProbe(host=node.host, hardware=node.hardware, failure=node.failure)
        for node in collector.nodes.values()
    )
    if all(node.hardware is None for node in nodes):
        first = nodes[0]
        why = "it was not heard of" if first.failure is None else first.failure.message
        raise HostUnreachableError(f"{first.host}: {why}")
    return ProbeResult(nodes=nodes, links=collector.links)


def _trained_bytes(store: LazyStore, checked: CheckedHosts) -> list[int]:
    """Give the largest sizes of gradients that these hosts have plans for."""
    store_here = store.find()
    facts = [checked.facts[host.name].hardware for host in checked.ranked]
    fingerprints = {node.fingerprint() for node in facts if node is not None}
    plans = [] if store_here is None else store_here.plans.find()
    found = {plan.gradient_bytes or 0 for plan in plans if plan.fingerprint in fingerprints}
    return sorted(found - {0}, reverse=True)[:_MOST_MODELS]
