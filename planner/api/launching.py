"""Launching: trainings with stored plans, on this machine or on several hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from launch.hosts.findings import CheckedHosts
from launch.hosts.host_line import Host
from launch.job import Job
from launch.reports import Described, Report, Warned, Working
from launch.strategies._gpus import explain_kinds
from planner.api._call_context import CallContext
from planner.api.use_cases import find_known_place
from planner.cancellation import Cancellation
from planner.cluster.links import MeasuredLinks
from planner.cluster_tuning.collector import LazyStore
from planner.cluster_tuning.task import ClusterPurpose, ClusterTask
from planner.jobs.host_choice import choose_hosts, largest_gradients
from planner.jobs.hosts import Hosts
from planner.jobs.launch_request import LaunchRequest
from planner.jobs.making import (
    NodePlan,
    accumulate,
    charge_input,
    find_plan,
    find_plans,
    make_job,
    make_local_job,
    renumber_gpus,
    share_input,
)
from planner.jobs.placement import Placement
from planner.jobs.prepared_launch import PreparedLaunch
from planner.jobs.restarts import check_restarts, run_with_restarts
from planner.jobs.resuming import resolve_resume
from planner.jobs.suggested_command import suggest_command
from planner.jobs.training import RUNS, LaunchOutcome, next_run_directory, run_job
from planner.jobs.world_check import check_world
from planner.plans.missing_plans import needing_plans
from planner.plans.software import current_software
from planner.store import Store, find_hazard
from planner.trainings.event_files import charting, check_event_folder
from planner.trainings.recorder import recording
from planner.trials.reports import Listener, ignore
from probes.node import probe_for_plans

_CHANGED = (
    "the use case, its code or its data are not what this plan was measured with: tune again to "
    "know whether it is still the fastest"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchResult:
    """A training that came to its end."""

    prepared: PreparedLaunch
    outcome: LaunchOutcome


def prepare_launch(
    request: LaunchRequest,
    *,
    db: str = "planner.db",
    hosts: Hosts | None = None,
    listener: Listener = ignore,
    cancellation: Cancellation | None = None,
) -> PreparedLaunch:
    """Find the plans of a training and give the job that `launch` would run; start nothing.

    Example:
        >>> from planner.api import LaunchRequest, make_workload, prepare_launch
        >>> request = LaunchRequest(workload=make_workload("simplebig"))
        >>> prepare_launch(request).job.nodes[0].plan.strategy  # doctest: +SKIP
        'threads'

    The arguments and errors are those of `launch`.
    """
    check_restarts(request)
    launcher = replace(_Launcher.of(hosts, db, listener, cancellation), starts=False)
    return launcher.prepare(request)[0]


def launch(
    request: LaunchRequest,
    *,
    db: str = "planner.db",
    hosts: Hosts | None = None,
    listener: Listener = ignore,
    cancellation: Cancellation | None = None,
) -> LaunchResult:
    """Train with stored plans, on this machine or on those of the hosts that are fastest together.

    Files are written below ``runs/`` in the working folder. A training that is cancelled ends
    after its step, with a checkpoint where such are written; a second cancel ends it at once.

    From its first step on the training has a row in the database, which `trainings` reads. Each
    restart after an accident is a training of its own: it may have other hosts and shares, and has
    a run directory of its own. A database that cannot be written stops no training.

    Example:
        >>> from planner.api import CheckpointConfig, LaunchRequest, launch, make_workload
        >>> workload = make_workload("simplebig")
        >>> checkpoint = CheckpointConfig(folder="checkpoints")
        >>> request = LaunchRequest(workload=workload, epochs=3, checkpoint=checkpoint)
        >>> result = launch(request)  # doctest: +SKIP
        >>> result.outcome.weights  # doctest: +SKIP
        PosixPath('/home/me/runs/1/weights.safetensors')

    Args:
        request: What to train, and how.
        db: Database with the plans.
        hosts: Where; this machine where left out.
        listener: Receives warnings, the `PreparedLaunch`, the number of the `TrainingRecorded`,
            and each step and epoch.
        cancellation: Ends the training, from any thread.

    Raises:
        NoPlanError: There is no plan for a host; the message names the command that finds one.
        StalePlanError: A host's plan was made on other hardware or software.
        InvalidPlanError: The hosts cannot take the global batch.
        UsageError: The options of checkpoints do not fit together, or there is no mpirun.
        CheckpointError: There is no usable checkpoint, or one that would be lost.
        HostUnreachableError: A host failed its checks.
        RefusedError: This is root, and the user has not allowed that.
        UseCaseError: The use case or its data are at fault.
        TrainingFailedError: A worker, a rank, a host or mpirun failed.
        CancelledError: The training has ended because that was asked for.
    """
    launcher = _Launcher.of(hosts, db, listener, cancellation)
    launcher.hosts.access.require_mpirun()
    if (hazard := find_hazard(db)) is not None:  # it is written to while the training runs
        launcher.warn(hazard)

    def attempt(request: LaunchRequest, good: Sequence[Host] | None) -> LaunchResult:
        if good is None:
            return launcher.run(request)
        return replace(launcher, hosts=launcher.hosts.only(good)).run(request)

    return run_with_restarts(
        request,
        attempt,
        partial(launcher.find_good_hosts, request),
        launcher.warn,
        pause=launcher.cancellation.wait,
    )


def train(prepared: PreparedLaunch, listener: Listener, cancellation: Cancellation) -> LaunchResult:
    """Run a prepared training to its end; `launch` has the errors."""
    listener(Working(what="starting mpirun and PyTorch"))
    known = {plan.stored.use_case_digest for plan in prepared.plans}
    is_described = None in known  # in plans of the first releases it is not

    def on_report(report: Report) -> None:
        nonlocal is_described
        if isinstance(report, Described):
            if not is_described and report.facts.digest not in known:
                listener(Warned(message=_CHANGED))
            is_described = True
        listener(report)

    outcome = run_job(
        prepared.job,
        RUNS,
        placement=prepared.placement,
        on_report=on_report,
        cancellation=cancellation,
    )
    return LaunchResult(prepared=prepared, outcome=outcome)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Launcher(CallContext):
    """What the attempts of one launch have in common; each may have other hosts."""

    starts: bool = True
    """Whether the job is to start; else nothing is measured, and root may ask."""

    def run(self, request: LaunchRequest) -> LaunchResult:
        """Train once."""
        if request.tensorboard is not None:
            check_event_folder(request.tensorboard)
        prepared, unjoined = self.prepare(request)
        self.listener(prepared)
        if unjoined is not None:
            names = [node.host for node in prepared.job.nodes]
            check_world(unjoined, self.hosts.access, self.listener, self.cancellation, names)
        with (
            recording(self.db, prepared.make_record(), self.listener) as recorder,
            charting(request.tensorboard, recorder) as listener,
        ):
            return train(prepared, listener, self.cancellation)

    def find_good_hosts(self, request: LaunchRequest) -> Sequence[Host]:
        """Give the hosts that pass their checks now."""
        if self.hosts.is_local:
            return self.hosts.machines
        checked = self.hosts.check(
            self.listener, self.cancellation, workload=request.workload, runs=RUNS
        )
        return checked.good or self.hosts.machines  # where none is, the next attempt says why

    def prepare(self, request: LaunchRequest) -> tuple[PreparedLaunch, CheckedHosts | None]:
        """Give the job to start, and its hosts where MPI was not found to join them yet."""
        request, shares = resolve_resume(request, self.warn)
        if (path := request.checkpoint.resume_from) is not None:
            self.note(f"going on from {path}")
        for note in self.hosts.notes:
            self.warn(note)
        with needing_plans(request.workload.use_case, self.db, self._remedy(request)):
            if self.hosts.is_local:
                prepared, unjoined = self._prepare_here(request), None
            else:
                prepared, unjoined = self._prepare_hosts(request, shares)
        self._warn_of_unused(request, prepared.job)
        return prepared, unjoined

    def _warn_of_unused(self, request: LaunchRequest, job: Job) -> None:
        """Say which settings of several hosts say nothing on a host alone."""
        unused = [f"--wire {job.wire}"] if job.wire != "fp32" else []
        unused += [f"--all-reduce {job.all_reduce}"] if job.all_reduce != "ring" else []
        unused += ["--all-hosts"] if request.all_hosts else []
        unused += ["--keep-shares"] if request.keep_shares else []
        if unused and len(job.nodes) == 1:
            self.warn(
                f"{', '.join(unused)} and one host: nothing is shared out or summed between hosts, "
                "so nothing changes by it"
            )

    def _find_known_place(self, store: Store, request: LaunchRequest) -> str:
        if request.known_as is not None:
            return request.known_as
        return find_known_place(store, request.workload, self.listener, self.cancellation)

    def _remedy(self, request: LaunchRequest) -> str:
        return suggest_command("tune", request.workload, db=self.db, hosts=self.hosts)

    def _renumber(self, plans: Sequence[NodePlan]) -> list[NodePlan]:
        """Give plans with their GPUs as CUDA numbers them; say which, where they differ in kind."""
        found = [renumber_gpus(plan) for plan in plans]
        for plan in found:
            if (line := explain_kinds(plan.plan, plan.node)) is not None:
                self.note(line)
        return found

    def _prepare_here(self, request: LaunchRequest) -> PreparedLaunch:
        node, software = probe_for_plans(), current_software()
        hosts, remedy = self.hosts, self._remedy(request)
        with Store.open(self.db, create=False) as store:
            known_as = self._find_known_place(store, request)
            plan = find_plan(store, request, node, software, remedy=remedy, known_as=known_as)
            (plan,) = accumulate(request, charge_input(store, request, self._renumber([plan])))
        plan = replace(plan, host=hosts.names[0])
        job = make_local_job(request, plan, next_run_directory(RUNS))
        if self.starts:
            hosts.access.check_root()
        placement = Placement(hosts=hosts.machines, access=hosts.access)
        return PreparedLaunch(job=job, placement=placement, plans=(plan,))

    def _prepare_hosts(
        self, request: LaunchRequest, shares: Mapping[str, int]
    ) -> tuple[PreparedLaunch, CheckedHosts | None]:
        hosts, remedy = self.hosts, self._remedy(request)
        with Store.open(self.db, create=False) as store:  # first: without plans no host is asked
            checked = hosts.check_good(
                self.listener, self.cancellation, workload=request.workload, runs=RUNS
            )
            if self.starts:
                hosts.access.check_root()
            nodes = {host.name: checked.get_hardware(host.name) for host in checked.ranked}
            plans = find_plans(
                store,
                request,
                nodes,
                current_software(),
                remedy=remedy,
                known_as=self._find_known_place(store, request),
            )
            plans = accumulate(request, charge_input(store, request, self._renumber(plans)))
            links = store.machines.latest_links(
                {host: node.fingerprint() for host, node in nodes.items()}
            )
        gradient_bytes = largest_gradients(plans)
        chooses = len(plans) > 1 and not (request.all_hosts or shares)
        is_joined = False
        if links is None and gradient_bytes is not None and chooses and self.starts:
            links = self._measure_links(checked, gradient_bytes)
            is_joined = links is not None
        choice = choose_hosts(request, shares, plans, links, self.listener)
        prepared = PreparedLaunch(
            job=make_job(request, choice.chosen, plans, next_run_directory(RUNS)),
            placement=Placement.of(checked, choice.chosen.hosts, hosts.access),
            plans=tuple(share_input(plans, choice.chosen)),
            choice=choice,
            links=links,
        )
        return prepared, None if is_joined else checked

    def _measure_links(self, checked: CheckedHosts, gradient_bytes: int) -> MeasuredLinks | None:
        """Measure the network between hosts that were never measured together, and store it.

        Without it, whether a host makes the job faster is not known.

        Returns:
            The links; ``None`` where a host was lost meanwhile.

        Raises:
            HostUnreachableError: MPI does not join the hosts.
        """
        check_world(checked, self.hosts.access, self.listener, self.cancellation)
        doing = f"measuring the network between {len(checked.ranked)} hosts"
        self.note(f"{doing}, as it was not measured with all of them")
        task = ClusterTask(purpose=ClusterPurpose.LINKS, message_bytes=(gradient_bytes,))
        with LazyStore(self.db) as store:
            collector, _ = self.run_on_all(task, doing, checked, store)
        has_all = all(node.failure is None for node in collector.nodes.values())
        return collector.links if has_all else None
