"""Work on several hosts: they are checked, then one MPI job runs on all of them."""

from __future__ import annotations

from launch.hosts.findings import CheckedHosts
from launch.reports import Working
from launch.workload import Workload
from planner.cancellation import Cancellation
from planner.cluster_tuning.collector import Collector, LazyStore, NodeState
from planner.cluster_tuning.driver import ClusterDriver
from planner.cluster_tuning.task import ClusterTask
from planner.errors import CancelledError
from planner.jobs.hosts import Hosts
from planner.jobs.world_check import check_world
from planner.plans.software import current_software
from planner.trials.reports import Listener


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
    task: ClusterTask,
    doing: str,
    checked: CheckedHosts,
    hosts: Hosts,
    store: LazyStore,
    listener: Listener,
    cancellation: Cancellation,
) -> tuple[Collector, bool]:
    """Run a task, which ``doing`` describes to people, on all hosts that passed their checks.

    A search that is interrupted ends in order.

    Returns:
        What the nodes reported, and whether they were interrupted.

    Raises:
        CancelledError: The end was asked for, and there is no search.
        HostUnreachableError: MPI cannot start the job.
    """
    listener(Working(what=doing))
    nodes = {host.name: NodeState(host=host.name) for host in checked.ranked}
    collector = Collector(store, current_software(), listener, task.request, nodes)
    driver = ClusterDriver(task, checked, hosts, collector, cancellation)
    try:
        driver.run()
    except (KeyboardInterrupt, CancelledError):
        if task.request is None:
            raise
        return collector, True
    return collector, False
