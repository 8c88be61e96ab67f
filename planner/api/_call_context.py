"""Context of a call of the API, and its work on several hosts: one MPI job runs on all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from launch.hosts.findings import CheckedHosts
from launch.reports import Noted, Warned, Working
from launch.workload import Workload
from planner.cancellation import Cancellation
from planner.cluster_tuning.collector import Collector, LazyStore, NodeState
from planner.cluster_tuning.driver import ClusterDriver
from planner.cluster_tuning.task import ClusterTask
from planner.errors import CancelledError
from planner.jobs.hosts import Hosts
from planner.jobs.world_check import check_world
from planner.plans.software import current_software
from planner.store import find_hazard
from planner.trials.reports import Listener


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """What a call has beside its request: its hosts, its database, who hears of it, its end."""

    hosts: Hosts
    db: str
    listener: Listener
    cancellation: Cancellation

    @classmethod
    def of(
        cls, hosts: Hosts | None, db: str, listener: Listener, cancellation: Cancellation | None
    ) -> Self:
        """Give the context of what the user names: this machine where no hosts are named."""
        return cls(
            hosts=hosts or Hosts.this_machine(),
            db=db,
            listener=listener,
            cancellation=cancellation or Cancellation(),
        )

    def warn(self, message: str) -> None:
        """Let the listener have a warning."""
        self.listener(Warned(message=message))

    def note(self, message: str) -> None:
        """Let the listener have a note."""
        self.listener(Noted(message=message))

    def warn_of_hazards(self) -> None:
        """Warn of entries of the host file without effect, and of what may harm the database."""
        for hazard in (*self.hosts.notes, find_hazard(self.db)):
            if hazard is not None:
                self.warn(hazard)

    def check_all(self, workload: Workload | None = None) -> CheckedHosts:
        """Check that all hosts can take part and that MPI joins them.

        Raises:
            HostUnreachableError: One cannot, or MPI does not.
            RefusedError: This is root, and the user has not allowed that.
            CancelledError: The end was asked for.
        """
        checked = self.hosts.check_good(self.listener, self.cancellation, workload=workload)
        self.hosts.access.check_root()
        check_world(checked, self.hosts.access, self.listener, self.cancellation)
        return checked

    def run_on_all(
        self, task: ClusterTask, doing: str, checked: CheckedHosts, store: LazyStore
    ) -> tuple[Collector, bool]:
        """Run a task, which ``doing`` describes to people, on all hosts that passed their checks.

        A search that is interrupted ends in order.

        Returns:
            What the nodes reported, and whether they were interrupted.

        Raises:
            CancelledError: The end was asked for, and there is no search.
            HostUnreachableError: MPI cannot start the job.
        """
        self.listener(Working(what=doing))
        nodes = {host.name: NodeState(host=host.name) for host in checked.ranked}
        collector = Collector(store, current_software(), self.listener, task.request, nodes)
        driver = ClusterDriver(task, checked, self.hosts, collector, self.cancellation)
        try:
            driver.run()
        except (KeyboardInterrupt, CancelledError):
            if task.request is None:
                raise
            return collector, True
        return collector, False
