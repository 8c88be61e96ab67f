"""Which plan is launched on which host? The stored one of each, put together into one job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from launch.errors import HostUnreachableError, InvalidPlanError
from launch.hosts.file import HostList, expand_hosts, is_this_machine, read_host_file
from launch.job import Job, NodeJob
from launch.mpi.root import needs_root_option
from launch.strategies import check_plan
from planner.errors import NoPlanError, RefusedError, StalePlanError
from planner.store import Store
from planner.stored_plan import StoredPlan, stale_reasons
from probes.hardware import Hardware


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """What the user wants launched."""

    use_case: str
    data: str | None = None
    hosts: Path | None = None
    epochs: int = 1
    plan_id: int | None = None
    global_batch: int | None = None
    seed: int = 0
    allow_stale: bool = False
    allow_root: bool = False


def find_hosts(request: LaunchRequest, environment: Mapping[str, str]) -> HostList:
    """Give the hosts of the job: those of the file, else of the Slurm allocation, else this one.

    Raises:
        HostFileError: The file or the allocation cannot be read.
        HostUnreachableError: A host is not this machine.
    """
    if request.hosts is not None:
        chosen = read_host_file(request.hosts)
    else:
        allocation = environment.get("SLURM_JOB_NODELIST") or "localhost"
        chosen = expand_hosts(allocation, source="SLURM_JOB_NODELIST")
    for host in chosen.hosts:
        if not is_this_machine(host):
            raise HostUnreachableError(
                f"host {host.name} is not this machine: this version launches on one node, "
                "run it there"
            )
    if len(chosen.hosts) > 1:
        names = ", ".join(host.name for host in chosen.hosts)
        raise HostUnreachableError(f"{names} are all this machine: name it once")
    return chosen


def find_plan(
    store: Store,
    request: LaunchRequest,
    node: Hardware,
    software: Mapping[str, str],
    *,
    remedy: str,
) -> StoredPlan:
    """Give the plan to launch on this node.

    Args:
        store: Where plans are.
        request: What the user wants launched.
        node: This machine.
        software: Versions that would run the plan.
        remedy: Command that finds a plan where there is none.

    Raises:
        NoPlanError: None is stored; the message names the command that finds one.
        StalePlanError: It was made on other hardware or software.
        UnknownStrategyError: It names a strategy that this version does not have.
        InvalidPlanError: It is a plan of another use case, its strategy can make nothing of it,
            or it does not fit this node.
    """
    if request.plan_id is not None:
        stored: StoredPlan | None = store.get_plan(request.plan_id)
    else:
        stored = store.best_plan(
            request.use_case, fingerprint=node.fingerprint(), node=node.node, software=software
        )
    if stored is None:
        raise NoPlanError(f"no plan for {request.use_case} on {node.node}: run {remedy}")
    if stored.use_case != request.use_case:
        raise InvalidPlanError(
            f"plan {stored.id} is for {stored.use_case}, not {request.use_case}: choose another"
        )
    reasons = stale_reasons(stored, fingerprint=node.fingerprint(), software=software)
    if reasons and not request.allow_stale:
        raise StalePlanError(
            f"plan {stored.id} is stale, {', '.join(reasons)}: run {remedy}, or pass --allow-stale"
        )
    check_plan(stored.plan)
    stored.plan.check_fits(node.cpu.usable_cores)
    return stored


def make_job(request: LaunchRequest, stored: StoredPlan, hosts: HostList, runs: Path) -> Job:
    """Put the job together; nothing is written yet."""
    plan = stored.plan
    if request.global_batch is not None:
        plan = replace(plan, node_batch=request.global_batch)
    return Job(
        use_case=request.use_case,
        nodes=tuple(NodeJob(host=host.name, plan=plan) for host in hosts.hosts),
        run_directory=str(runs),
        data=request.data,
        epochs=request.epochs,
        seed=request.seed,
    )


def check_root(request: LaunchRequest) -> bool:
    """Tell whether mpirun must be told that root may run it.

    Raises:
        RefusedError: This is root, and the user has not said that it should be.
    """
    if not needs_root_option(os.environ):
        return False
    if not request.allow_root:
        raise RefusedError(
            "running as root, which mpirun refuses because a slip can ruin the machine: "
            "run as a user, or in a container pass --allow-run-as-root"
        )
    return True
