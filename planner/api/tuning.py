"""Tuning: the search for the fastest plan of this machine, or of each of several hosts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from launch.errors import HostUnreachableError, UseCaseError
from launch.reports import Noted, Warned, Working
from launch.workers.fork_server_pool import ForkServerPool
from planner.api._call_context import CallContext
from planner.cancellation import Cancellation
from planner.cluster.links import MeasuredLinks
from planner.cluster_tuning.collector import LazyStore, NodeState
from planner.cluster_tuning.reports import NodeFailed
from planner.cluster_tuning.task import ClusterPurpose, ClusterTask
from planner.errors import NoPlanError
from planner.jobs.hosts import Hosts
from planner.plans.objective import TIME_TO_LOSS
from planner.plans.software import current_software
from planner.plans.stored_plan import StoredPlan
from planner.quantities import format_count
from planner.scripts.naming import code_of
from planner.store import Store, check_location
from planner.time_to_loss.ranking import WeighedTrials, in_real_time, start_by_worth
from planner.time_to_loss.short_training import Target, measure_objective
from planner.trials.machine_alone import machine_alone
from planner.trials.reports import Listener, ignore
from planner.trials.runner import TrialRunner
from planner.tuning.conclusion import TuneOutcome, conclude
from planner.tuning.findings import Findings
from planner.tuning.preparation import PreparedCase, prepare
from planner.tuning.tune import Tuner
from planner.tuning.tune_request import TuneRequest
from probes.hardware import Hardware
from probes.node import probe, probe_for_plans


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTuneResult:
    """What a search found on one node."""

    host: str
    """As the host file names it."""

    outcome: TuneOutcome | None
    """``None`` where the node got no plan."""

    pixel_bytes: int | None = None
    """Size of the decoded pictures in the cache; ``None`` where there are none."""

    failure: NodeFailed | None = None
    """Why it got no plan, or did not come to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneResult:
    """What a search found; plans and trials are in the database too."""

    nodes: tuple[NodeTuneResult, ...]
    """In the order of the ranks."""

    links: MeasuredLinks | None = None
    """The network between them, where it was measured."""

    elapsed_s: float

    before_search_s: float | None = None
    """Time of that until the budget began to run: for torch, the use case and its data, and a first
    probe. ``None`` where the budget holds all of it, and on several hosts."""

    interrupted: bool
    """Whether it was cancelled, or ended by Ctrl-C: the same request continues it."""

    launch_plan_id: int | None = None
    """Number of the plan of this machine, where a launch would choose another by itself."""

    @property
    def plan(self) -> StoredPlan:
        """The best plan of the first node that has one."""
        return next(node.outcome.plan for node in self.nodes if node.outcome is not None)


def tune(
    request: TuneRequest,
    *,
    db: str = "planner.db",
    hosts: Hosts | None = None,
    listener: Listener = ignore,
    cancellation: Cancellation | None = None,
    waits: bool = True,
) -> TuneResult:
    """Search for the fastest way to train a use case on this machine, or on each host.

    Each trial is in the database as soon as it ends. A search that is cancelled, or that Ctrl-C
    ends, gives what it knows; it raises only where no trial had succeeded.

    Example:
        >>> from planner.api import TuneRequest, make_workload, tune
        >>> workload = make_workload("simplebig")
        >>> result = tune(TuneRequest(workload=workload, budget_s=300))  # doctest: +SKIP
        >>> result.plan.throughput_samples_per_s.median  # doctest: +SKIP
        61.3

    Args:
        request: What to search, and for how long.
        db: Database: a path, or ``postgresql+psycopg://user@host/name``.
        hosts: Where; this machine where left out.
        listener: Receives progress, warnings, and each trial.
        cancellation: Ends the search in order, from any thread.
        waits: Whether to wait while something else is timed on a machine, or a training runs.

    Raises:
        MachineBusyError: That is so, and ``waits`` is false.
        UseCaseError: The use case or its data are at fault.
        HostUnreachableError: A host failed its checks, before anything was started.
        NoPlanError: No trial succeeded; or the noise scale that the objective needs is not known.
        InvalidPlanError: The objective is none for several hosts, a batch has more samples than
            the data, the budget holds no comparison of two plans, or a strategy cannot run here.
        RefusedError: This is root, and the user has not allowed jobs on several hosts.
        StoreError: The database cannot be used.
        CancelledError: The search was cancelled before any trial had succeeded.
    """
    context = CallContext.of(hosts, db, listener, cancellation)
    context.hosts.check_objective(request.objective)
    context.cancellation.check()  # before torch is loaded
    check_location(db)  # before anything is prepared or timed that could not be stored
    context.warn_of_hazards()
    if not context.hosts.is_local:
        return _tune_hosts(request, context, waits=waits)
    with machine_alone(listener, context.cancellation, waits=waits):
        return _tune_here(request, context)


def _tune_here(request: TuneRequest, context: CallContext) -> TuneResult:
    started = time.monotonic()
    software, listener = current_software(), context.listener
    node = probe_for_plans()
    with ForkServerPool() as servers:
        runner = TrialRunner(request.workload, node, servers, context.cancellation)
        listener(Working(what="loading PyTorch and the use case"))
        prepared = prepare(request, node, runner, needs_all_strategies=True, listener=listener)
        # Only now: a use case or a folder that is no good leaves no database behind.
        with Store.open(context.db) as store:
            node = find_or_probe_node(store, node, listener)
            before_s = time.monotonic() - started - prepared.checked_s
            if request.objective == TIME_TO_LOSS:
                outcome = _tune_to_loss(request, prepared, node, store, runner, listener)
            else:
                findings = Findings(request, prepared.facts, node, software, store.studies)
                tuner = Tuner(findings, runner.start, listener, checked_s=prepared.checked_s)
                outcome = conclude(findings, store.plans, interrupted=tuner.search())
            launch_plan_id = find_launch_plan_id(store, outcome.plan)
    (host,) = context.hosts.names
    found = NodeTuneResult(host=host, outcome=outcome, pixel_bytes=prepared.pixel_bytes)
    return TuneResult(
        nodes=(found,),
        elapsed_s=time.monotonic() - started,
        before_search_s=before_s,
        interrupted=outcome.interrupted,
        launch_plan_id=launch_plan_id,
    )


def _tune_to_loss(
    request: TuneRequest,
    prepared: PreparedCase,
    node: Hardware,
    store: Store,
    runner: TrialRunner,
    listener: Listener,
) -> TuneOutcome:
    """Measure the noise scale in a short training, then search by what samples are worth."""
    started = time.monotonic()
    listener(Working(what="measuring the gradient noise scale in a short training"))
    objective = measure_objective(
        runner.train_shortly,
        prepared.facts,
        node,
        listener,
        budget_s=request.budget_s,
        target=Target(loss=request.target_loss, accuracy=request.target_accuracy),
    )
    listener(Noted(message=f"rates of the search count samples as in {objective.base_batch}"))

    def worth(batch: int) -> float:
        return objective.efficiency(batch, request.lr_scaling)

    findings = Findings(
        request,
        prepared.facts,
        node,
        current_software(),
        WeighedTrials(store.studies, worth),
        worth,
    )
    tuner = Tuner(
        findings,
        start_by_worth(runner.start, worth),
        listener,
        checked_s=prepared.checked_s + time.monotonic() - started,
    )
    interrupted = tuner.search()
    candidates = findings.candidates()
    chosen = findings.choose(candidates).plan if candidates else None
    return conclude(
        in_real_time(findings, worth),
        store.plans,
        interrupted=interrupted,
        chosen=chosen,
        objective=objective,
    )


def find_or_probe_node(store: Store, node: Hardware, listener: Listener) -> Hardware:
    """Give this machine as it is today, with stored speeds; measure them where there are none.

    The fingerprint leaves out which cores and GPUs this process is shown, and how much memory is
    left: that a stored probe cannot tell.
    """
    stored = store.machines.latest_probe(node.fingerprint(), node=node.node)
    if stored is not None and stored.speeds is not None:
        return probe(known_speeds=stored.speeds)
    listener(Noted(message=f"probing {node.node}, whose speeds are not stored"))
    measured = probe()
    store.machines.save_probe(measured)
    return measured


def find_launch_plan_id(store: Store, found: StoredPlan) -> int | None:
    """Give a plan's number where a launch would choose another one by itself."""
    chosen = store.plans.best(
        found.use_case,
        software=found.software,
        fingerprint=found.fingerprint,
        node=found.node,
        code=code_of(found.use_case_digest),
    )
    return None if chosen is not None and chosen.id == found.id else found.id


def _tune_hosts(request: TuneRequest, context: CallContext, *, waits: bool) -> TuneResult:
    started = time.monotonic()
    checked = context.check_all(request.workload)
    with LazyStore(context.db) as store:
        task = ClusterTask(purpose=ClusterPurpose.TUNE, request=request, waits=waits)
        doing = f"tuning {format_count(len(context.hosts.machines), 'host')}"
        collector, interrupted = context.run_on_all(task, doing, checked, store)
        collector.conclude(interrupted=interrupted)
    states = list(collector.nodes.values())
    for state in states:
        if state.failure is not None and not state.failure.is_lost:  # that was reported at once
            context.listener(Warned(message=state.failure.message), state.host)
        elif state.outcome is None and not interrupted:
            context.listener(Warned(message="it was not heard to the end: tune again"), state.host)
    if not any(state.outcome for state in states):
        if interrupted:
            context.cancellation.check()
            raise KeyboardInterrupt
        raise _make_no_plan_error(states)
    return TuneResult(
        nodes=tuple(
            NodeTuneResult(
                host=state.host,
                outcome=state.outcome,
                pixel_bytes=state.pixel_bytes,
                failure=state.failure,
            )
            for state in states
        ),
        links=collector.links,
        elapsed_s=time.monotonic() - started,
        interrupted=interrupted,
    )


def _make_no_plan_error(states: Sequence[NodeState]) -> Exception:
    """Make the error of a job in which no host got a plan: of the first one, and how many more."""
    failed = [(state.host, state.failure) for state in states if state.failure is not None]
    if not failed:
        return NoPlanError("no host got a plan: raise --budget")
    host, first = failed[0]
    more = f" (and {format_count(len(failed) - 1, 'more host')})" if len(failed) > 1 else ""
    message = f"{host}: {first.message}{more}"
    kinds: dict[int, type[Exception]] = {2: UseCaseError, 4: HostUnreachableError}
    codes = {failure.code for _, failure in failed}
    return (kinds.get(first.code, NoPlanError) if len(codes) == 1 else NoPlanError)(message)
