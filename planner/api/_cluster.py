"""Work on several hosts: they are checked, then one MPI job runs on all of them."""

from __future__ import annotations

from launch.hosts.findings import CheckedHosts
from launch.reports import Working
from launch.workload import Workload
from planner.cancellation import Cancellation
from planner.cluster_tuning.collector import Collector, LazyStore, NodeState
from planner.cluster_tuning.driver import ClusterDriver
from planner.cluster_tuning.task import ClusterPurpose
from planner.errors import CancelledError
from planner.jobs.hosts import Hosts
from planner.jobs.world_check import check_world
from planner.plans.software import current_software
from planner.trials.reports import Listener
from planner.tuning.tune_request import TuneRequest


def check_all(
    hosts: Hosts,
    listener: Listener,
    cancellation: Cancellation,
    *,
    workload: Workload | None = None,
) -> CheckedHosts:
    """Check that all hosts can take part and that MPI joins them.

    Raises:
        HostUnreachableError: One cannot, or MPI does not.
        RefusedError: This is root, and the user has not allowed that.
        CancelledError: The end was asked for.
    """
    checked = hosts.check_good(listener, cancellation, workload=workload)
    hosts.access.check_root()
    check_world(checked, hosts.access, listener, cancellation)
    return checked


def run_on_all(
    purpose: ClusterPurpose,
    doing: str,
    checked: CheckedHosts,
    hosts: Hosts,
    store: LazyStore,
    listener: Listener,
    cancellation: Cancellation,
    *,
    request: TuneRequest | None = None,
    is_quick: bool = False,
    data: str | None = None,
    message_bytes: tuple[int, ...] = (),
    waits: bool = True,
) -> tuple[Collector, bool]:
    """Run a task on all hosts that passed their checks.

    Args:
        purpose: What the nodes do.
        doing: The same, for people.
        checked: What the checks showed.
        hosts: The hosts.
        store: Where results are stored.
        listener: Receives the reports of the nodes.
        cancellation: Ends it.
        request: The search, where there is one: interrupted, it ends in order.
        is_quick: Whether nothing is measured.
        data: Folder of data that a probe measures too.
        message_bytes: Sizes of gradients whose sum is timed.
        waits: Whether a host waits while something else is timed on it; else it gives up.

    Returns:
        What the nodes reported, and whether they were interrupted.

    Raises:
        CancelledError: The end was asked for, and there is no search.
        HostUnreachableError: MPI cannot start the job.
    """
    listener(Working(what=doing))
    nodes = {host.name: NodeState(host=host.name) for host in checked.ranked}
    collector = Collector(store, current_software(), listener, request, nodes)
    driver = ClusterDriver(
        purpose,
        checked,
        hosts,
        collector,
        is_quick=is_quick,
        data=data,
        message_bytes=message_bytes,
        waits=waits,
        cancellation=cancellation,
    )
    try:
        driver.run()
    except (KeyboardInterrupt, CancelledError):
        if request is None:
            raise
        return collector, True
    return collector, False
