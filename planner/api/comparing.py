"""Comparing: our plan and other ways to train, in turns on the same machines."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from launch.job import NodeJob
from launch.mpi.job import MpiJob
from launch.plan import Plan
from launch.reports import Working
from launch.system.durable_files import write_private
from launch.system.run_directory import RunDirectory
from launch.workers.fork_server_pool import ForkServerPool
from planner.api._call_context import CallContext
from planner.api.launching import prepare_launch
from planner.api.use_cases import find_known_place
from planner.cancellation import Cancellation
from planner.errors import NoDatabaseError, TrainingFailedError, UsageError
from planner.jobs.hosts import Hosts
from planner.jobs.launch_request import LaunchRequest
from planner.jobs.mpi_run import temporary_run_directory
from planner.jobs.placement import Placement
from planner.jobs.prepared_launch import PreparedLaunch
from planner.jobs.training import PROGRAM
from planner.peer_runs.comparer import Comparer, OwnTurns, StartOurs
from planner.peer_runs.launcher import PeerLauncher, ReachableHost, make_folder_name
from planner.peer_runs.processes import PeerProcesses, supervised
from planner.peer_runs.request import CompareRequest
from planner.peer_runs.result import ComparedHost, Comparison
from planner.peer_runs.supervisor import SupervisorRequest
from planner.peer_runs.trainings import OwnTraining, OwnTrainingOnHosts
from planner.peers import load_peer
from planner.plans.software import current_software
from planner.plans.stored_plan import find_best, stale_reasons, utc_now
from planner.store import Store
from planner.trials.contender import TrialFailedError
from planner.trials.machine_alone import machine_alone
from planner.trials.reports import Listener, ignore
from planner.trials.runner import TrialRunner
from probes import codec
from probes.hardware import Hardware
from probes.node import probe

_ENDLESS = 1_000_000
_STANDS_STILL_S = 24 * 3600.0
"""A job of ours stands still while others have their turns."""

_MOST_LOADERS_PER_CORE = 4
"""Data-loading processes that wait for a disk or a network leave their core to others."""


def compare(
    request: CompareRequest,
    *,
    db: str = "planner.db",
    hosts: Hosts | None = None,
    listener: Listener = ignore,
    cancellation: Cancellation | None = None,
    waits: bool = True,
) -> Comparison:
    """Let our plan take turns with other ways to train the same model on the same data.

    A peer that cannot be started, dies or hangs is a result with its reason. What is cancelled,
    or ended by Ctrl-C or as our own training fails, gives what it knows by then.

    Example:
        >>> from planner.api import CompareRequest, compare, make_workload
        >>> request = CompareRequest(workload=make_workload("simplebig"), peers=("plain", "ddp"))
        >>> compare(request).results[0].ratio.low  # doctest: +SKIP
        1.34

    Args:
        request: What is compared, and for how long.
        db: Database with our plans.
        hosts: Where; this machine where left out.
        listener: Receives progress and warnings.
        cancellation: Ends it, from any thread.
        waits: Whether to wait while something else is timed on this machine, or a training runs.

    Raises:
        UsageError: There is no peer of such a name, no mpirun, our plan trains on GPUs, or peers
            would have more data-loading processes than a host could use.
        NoPlanError: There is no plan for a host; the message names the command that finds one.
        StalePlanError: A plan was made on other hardware or software.
        MachineBusyError: Something else is timed here, and ``waits`` is false.
        HostUnreachableError: A host failed its checks.
        RefusedError: This is root, and the user has not allowed jobs on several hosts.
        UseCaseError: The use case or its data are at fault.
        TrainingFailedError: Our own training failed before anything was measured.
        CancelledError: The end was asked for before anything was measured.
    """
    context = CallContext.of(hosts, db, listener, cancellation)
    hosts, cancellation = context.hosts, context.cancellation
    for name in request.peers:
        load_peer(name)
    hosts.access.require_mpirun(also_in_slurm=True)
    ours = _launch_request(request, context)
    prepared = prepare_launch(
        ours, db=db, hosts=hosts, listener=listener, cancellation=cancellation
    )
    if (batch := request.batch_size) is not None and ours.plan_id is None and hosts.is_local:
        context.warn(
            f"no plan was found for a batch of {batch}: ours is the best plan with that batch, and "
            f"may be faster after ddlplan tune --batch-size {batch}"
        )
    numbers = {plan.host: plan.stored.id for plan in prepared.plans}
    check_on_cpu([(numbers[node.host], node.plan) for node in prepared.job.nodes])
    cores = min(plan.node.cpu.usable_cores for plan in prepared.plans)
    check_loader_workers(request.loader_workers, cores)
    if (warning := explain_precision(prepared.job.nodes)) is not None:
        context.warn(warning)
    with machine_alone(listener, cancellation, waits=waits):
        if hosts.is_local:
            return _compare_here(request, prepared, context)
        return _compare_on_hosts(request, prepared, context)


def _launch_request(request: CompareRequest, context: CallContext) -> LaunchRequest:
    """Give the launch of ours: the plan that was found for the batch, where there is one."""
    batch, found = request.batch_size, request.plan_id
    known_as: str | None = None
    hosts = context.hosts
    if batch is not None and found is None and hosts.is_local:
        found, known_as = _find_plan_for(batch, request, context)
    return LaunchRequest(
        workload=request.workload,
        epochs=_ENDLESS,
        plan_id=found,
        known_as=known_as,
        global_batch=None if batch is None else batch * len(hosts.machines),
        keep_shares=len(hosts.machines) > 1,
        all_hosts=len(hosts.machines) > 1,
        allow_stale=request.allow_stale,
        hang_timeout_s=_STANDS_STILL_S,
    )


def check_on_cpu(plans: Iterable[tuple[int | None, Plan]]) -> None:
    """Check that plans of ours compute on what their peers compute on.

    Args:
        plans: With their numbers.

    Raises:
        UsageError: A plan of ours trains on GPUs.
    """
    for number, plan in plans:
        if plan.gpus:
            raise UsageError(
                f"plan {number} trains on {', '.join(plan.devices)}, and peers on "
                "the CPU: name a plan for the CPU with --plan, such as one of "
                "ddlplan tune --strategies threads,processes"
            )


def check_loader_workers(number: int, cores: int) -> None:
    """Check that a peer's process does not have more of them than its host could ever use.

    Args:
        number: Data-loading processes of each process of a peer.
        cores: Of the host with the fewest.

    Raises:
        UsageError: There are more.
    """
    most = _MOST_LOADERS_PER_CORE * cores
    if number > most:
        raise UsageError(
            f"--loader-workers {number} and usable_cores={cores}: use at most {most}, which is "
            f"{_MOST_LOADERS_PER_CORE} for each core"
        )


def explain_precision(nodes: Sequence[NodeJob]) -> str | None:
    """Say where plans of ours compute in another precision than their peers; else ``None``."""
    others = [node for node in nodes if node.plan.precision != "fp32"]
    if not others:
        return None
    if len(nodes) == 1:
        return f"our plan computes in {others[0].plan.precision}, its peers in fp32"
    where = ", ".join(f"{node.plan.precision} on {node.host}" for node in others)
    return f"our plans compute in {where}, their peers in fp32"


def _find_plan_for(
    batch: int, request: CompareRequest, context: CallContext
) -> tuple[int | None, str | None]:
    """Find the best plan of this machine with a batch; ``None`` without one that is not stale.

    Also give where the use case lay when its plans were found: it may have to be read for that.
    """
    here, software = probe(quick=True), current_software()
    try:
        with Store.open(context.db, create=False) as store:
            known_as = find_known_place(
                store, request.workload, context.listener, context.cancellation
            )
            known = store.plans.find(known_as, here.node)
    except NoDatabaseError:
        return None, None
    fresh = [
        plan
        for plan in known
        if plan.plan.node_batch == batch
        and not stale_reasons(plan, fingerprint=here.fingerprint(), software=software)
    ]
    best = find_best(fresh, fingerprint=here.fingerprint(), software=software)
    return None if best is None else best.id, known_as


def _compare_here(
    request: CompareRequest, prepared: PreparedLaunch, context: CallContext
) -> Comparison:
    listener, cancellation = context.listener, context.cancellation
    node, plan = probe(quick=True), prepared.job.nodes[0].plan
    (host,) = prepared.placement.hosts
    nodes, addresses = {host.name: node}, {host.name: "127.0.0.1"}
    with ForkServerPool() as servers:
        runner = TrialRunner(request.workload, node, servers, cancellation)
        listener(Working(what="loading PyTorch and the use case"))
        case = runner.describe(listener)  # which makes the data ready, for peers too

        @contextmanager
        def start_ours() -> Iterator[OwnTurns]:
            began_s = time.monotonic()
            try:
                contender = runner.start(plan)
            except TrialFailedError as error:
                raise TrainingFailedError(f"our own plan: {error.reason}") from error
            try:
                yield OwnTraining(
                    contender,
                    began_s=began_s,
                    step_limit_s=request.step_limit_s,
                    is_generated=case.is_generated,
                )
            finally:
                contender.close()

        return _take_turns(
            request, prepared, start_ours, nodes, addresses, listener, None, cancellation.check
        )


def _compare_on_hosts(
    request: CompareRequest, prepared: PreparedLaunch, context: CallContext
) -> Comparison:
    listener, cancellation = context.listener, context.cancellation
    context.hosts.access.check_root()
    checked = context.hosts.check_good(listener, cancellation, workload=request.workload)
    placement = prepared.placement
    nodes = {host.name: checked.get_hardware(host.name) for host in placement.hosts}
    with temporary_run_directory() as directory:
        placement.prepare(directory)
        ssh_config = directory.ssh_config
        running: list[OwnTrainingOnHosts] = []

        def on_poll() -> None:
            cancellation.check()
            for job in running:
                job.read()

        @contextmanager
        def start_ours() -> Iterator[OwnTurns]:
            with (
                _running_job(prepared, directory) as (job, document),
                _worker_supervisors(placement, document, ssh_config, cancellation) as workers,
            ):
                own = OwnTrainingOnHosts(
                    job,
                    workers,
                    cancellation,
                    start_limit_s=request.start_limit_s,
                    step_limit_s=request.step_limit_s,
                )
                running.append(own)
                try:
                    yield own
                finally:
                    running.clear()

        return _take_turns(
            request, prepared, start_ours, nodes, checked.addresses, listener, ssh_config, on_poll
        )


@contextmanager
def _running_job(prepared: PreparedLaunch, directory: RunDirectory) -> Iterator[tuple[MpiJob, str]]:
    """Start our job; give it with the argument of its ranks, by which they are found."""
    placement = prepared.placement
    job = replace(prepared.job, run_directory=str(directory.path), networks=placement.networks)
    write_private(directory.job, codec.encode(job, indent=1))
    document = str(placement.deliver(directory))
    command = placement.command([PROGRAM, document], directory, os.environ)
    with MpiJob(command, directory.mpirun_log) as running:
        yield running, document


def _worker_supervisors(
    placement: Placement, document: str, ssh_config: Path, cancellation: Cancellation
) -> PeerProcesses:
    folder = make_folder_name()
    request = SupervisorRequest(token=folder.name, folder=str(folder), job=document)
    return PeerProcesses(
        [
            supervised(None if placement.starts_here and number == 0 else host, request)
            for number, host in enumerate(placement.hosts)
        ],
        ssh_config=ssh_config,
        on_poll=cancellation.check,
    )


def _take_turns(
    request: CompareRequest,
    prepared: PreparedLaunch,
    start_ours: StartOurs,
    nodes: Mapping[str, Hardware],
    addresses: Mapping[str, str],
    listener: Listener,
    ssh_config: Path | None,
    on_poll: Callable[[], None],
) -> Comparison:
    """Let ours and its peers take turns on the nodes of a job; these and addresses are by host."""
    placement, batches = prepared.placement, prepared.job.node_batches
    node_batch = sum(batches) // len(batches)
    cores = {name: node.cpu.usable_cores for name, node in nodes.items()}
    launcher = PeerLauncher(
        request,
        prepared.job.nodes[0].plan,
        node_batch,
        [
            ReachableHost(host=host, address=addresses[host.name], cores=cores[host.name])
            for host in placement.hosts
        ],
        placement.mpi_settings(ssh_config),
        starts_here=placement.starts_here,
        on_poll=on_poll,
    )
    found = Comparer(request, start_ours, launcher, listener).run()
    numbers = {plan.host: plan.stored.id for plan in prepared.plans}
    return Comparison(
        use_case=request.workload.use_case,
        created_at=utc_now(),
        hosts=tuple(
            ComparedHost(name=name, cpu=node.cpu.model, cores=cores[name])
            for name, node in nodes.items()
        ),
        node_batch=node_batch,
        plans=tuple(node.plan for node in prepared.job.nodes),
        plan_ids=tuple(numbers[node.host] for node in prepared.job.nodes),
        software=current_software(),
        start_s=found.own_start_s,
        results=found.results,
        is_generated=found.is_generated,
        interrupted=found.interrupted,
        failure=found.failure,
    )
