"""Hosts together: what is predicted of every set of hosts whose network was measured."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from launch.errors import LaunchError
from launch.workload import Workload
from planner.cluster.links import MeasuredLinks
from planner.cluster.node_choice import NodeChoice
from planner.errors import PlannerError, StoreError
from planner.jobs.host_choice import choose_hosts
from planner.jobs.launch_request import LaunchRequest
from planner.jobs.making import NodePlan, find_plans
from planner.plans.software import current_software
from planner.store import Store
from planner.trials.reports import ignore


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsTogether:
    """A measured network, and what its hosts would reach together."""

    network: MeasuredLinks
    use_case: str | None
    """``None`` where there is no plan of any."""

    plans: Sequence[NodePlan] = ()
    choice: NodeChoice | None = None
    reason: str | None = None
    """Why nothing can be predicted; ``None`` where it can."""


def predict(
    use_case: str | None = None,
    *,
    hosts: Sequence[str] | None = None,
    global_batch: int | None = None,
    db: str = "planner.db",
) -> HostsTogether | None:
    """Predict how fast the hosts of a measured network train together; start nothing.

    Example:
        >>> from planner.api import together
        >>> together.predict("simplebig").choice.gains[1].gain  # doctest: +SKIP
        0.42

    Args:
        use_case: As `make_workload` spells it; else the one with the latest plan, one that all of
            them have a plan of before others.
        hosts: Of a network that was measured with just these; else the last one.
        global_batch: Samples of a step; else the sum of the plans' batches.
        db: Database.

    Returns:
        ``None`` where no such network was measured.

    Raises:
        NoDatabaseError: There is no database.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        networks = store.machines.find_links()
        wanted = None if hosts is None else set(hosts)
        network = next((one for one in networks if wanted in (None, set(one.hosts))), None)
        if network is None:
            return None
        every = [one for one in store.catalog.machines() if one.hardware]
        machines = {one.fingerprint: one.hardware for one in every}
        named = {(one.name, one.fingerprint): one.hardware for one in every}
        nodes = {
            host: named.get((host, mark)) or machines.get(mark)
            for host, mark in network.hardware.items()
        }
        marks = set(network.fingerprints) & machines.keys()
        if use_case is None:
            use_case = store.catalog.latest_use_case(marks)
        if use_case is None:
            why = "no plan of any of these hosts is stored: tune them first"
            return HostsTogether(network=network, use_case=None, reason=why)
        known = {host: node for host, node in nodes.items() if node is not None}
        if missing := [host for host in nodes if host not in known]:
            why = f"no probe of {', '.join(missing)} is stored: run ddlplan probe there"
            return HostsTogether(network=network, use_case=use_case, reason=why)
        remedy = f"ddlplan tune --use-case {shlex.quote(use_case)} there"
        request = LaunchRequest(
            workload=Workload(use_case=use_case), allow_stale=True, global_batch=global_batch
        )
        try:
            found = find_plans(store, request, known, current_software(), remedy=remedy)
            choice = choose_hosts(request, {}, found, network, ignore)
        except StoreError:
            raise
        except (PlannerError, LaunchError) as error:
            return HostsTogether(network=network, use_case=use_case, reason=str(error))
        return HostsTogether(network=network, use_case=use_case, plans=found, choice=choice)
