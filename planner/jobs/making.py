"""Making of a job: the stored plan of each host, put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from launch.errors import InvalidPlanError
from launch.job import Job, NodeJob
from launch.noise_scale.estimate import COST_LIMIT
from launch.plan import PRECISIONS, Plan
from launch.shares import NodeLimits, StepTime
from launch.strategies import check_plan, load_strategy
from launch.strategies._gpus import find_devices
from planner.cluster.prediction import ClusterNode, Prediction
from planner.cluster.sync_cost import first_ready
from planner.errors import NoPlanError, StalePlanError
from planner.input_cost.epochs import InputCost, assess_input
from planner.jobs.accumulation import accumulate_steps, count_passes
from planner.jobs.batch_limit import largest_batch
from planner.jobs.launch_request import LaunchRequest
from planner.plans.measured_steps import (
    MeasuredSteps,
    StepPoint,
    add_fixed_cost,
    steps_from_points,
)
from planner.plans.missing_plans import make_missing_plan_error
from planner.plans.step_times import fit_measured_steps
from planner.plans.stored_plan import StoredPlan, stale_reasons
from planner.store import Store
from probes.hardware import Hardware


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """The plan of one host, with what a share needs."""

    host: str
    node: Hardware
    stored: StoredPlan
    steps: MeasuredSteps
    reasons: tuple[str, ...] = ()
    """Why the plan is stale; used all the same."""

    input: InputCost | None = None
    """What reading the data takes; ``None`` where that was not measured."""

    epochs: int = 1
    """Of the training, over which a first epoch counts."""

    passes: int = 1
    """How often a step does what was a step of the stored plan; `steps` are with these passes."""

    devices: tuple[str, ...] | None = None
    """Of the plan, as CUDA numbers the node's GPUs now; ``None``: as they are stored."""

    @property
    def plan(self) -> Plan:
        """The stored plan, with the devices of its node and the micro-batches of all passes."""
        plan = self.stored.plan
        if self.devices is not None:
            plan = replace(plan, devices=self.devices)
        return load_strategy(plan.strategy).accumulate(plan, self.passes)

    @property
    def max_batch(self) -> int:
        """Largest share."""
        return largest_batch(self.plan, self.steps, self.node)

    @property
    def _charged_time(self) -> StepTime:
        """Time of a step, with what reading the data adds to each sample over all epochs."""
        time = self.steps.step_time
        if self.input is None:
            return time
        added_s = max(0.0, self.input.mean_sample_s(self.epochs) - self.input.base_s)
        return replace(time, per_sample_s=time.per_sample_s + added_s)

    def cluster_node(self) -> ClusterNode:
        """Give what shares are worked out from."""
        plan, cpu = self.plan, self.node.cpu
        cores = cpu.granted_cores
        is_busy = "cpu" in plan.devices and plan.threads >= cores
        return ClusterNode(
            host=self.host,
            time=self._charged_time,
            tuned_batch=plan.node_batch,
            limits=NodeLimits.of_plan(plan, self.max_batch),
            cores=cores if is_busy else None,
            first_ready=first_ready(
                plan.micro_batches,
                begins_early=bool(self.stored.begins_early),
                sends_at_end=load_strategy(plan.strategy).sends_at_end(plan),
            ),
        )


def renumber_gpus(plan: NodePlan) -> NodePlan:
    """Give a plan that is to run now, with its GPUs as CUDA numbers them on its node.

    Raises:
        InvalidPlanError: CUDA does not show as many GPUs as the plan has, or perhaps other kinds.
    """
    return replace(plan, devices=find_devices(plan.stored.plan, plan.node))


def accumulate(request: LaunchRequest, plans: Sequence[NodePlan]) -> list[NodePlan]:
    """Let a step be as many passes as the user's batch takes, the same number on every node.

    No more samples are then computed at once than a share of the plans' own batches has.
    """
    if not request.accumulates or request.global_batch is None:
        return list(plans)
    passes = count_passes(request.global_batch, [plan.stored.plan for plan in plans])
    return [
        replace(plan, passes=passes, steps=accumulate_steps(plan.steps, passes)) for plan in plans
    ]


def find_plan(
    store: Store,
    request: LaunchRequest,
    node: Hardware,
    software: Mapping[str, str],
    *,
    remedy: str,
    host: str | None = None,
    known_as: str | None = None,
) -> NodePlan:
    """Give the plan to launch on a node.

    Args:
        store: Where plans are.
        request: What the user wants launched.
        node: The node.
        software: Versions that would run the plan.
        remedy: Command that finds a plan where there is none.
        host: What the host file calls the node; its own name where left out.
        known_as: Where the same use case lay when its plans were found, if not where it lies now.

    Raises:
        NoPlanError: None is stored; the message names the command that finds one.
        StalePlanError: It was made on other hardware or software.
        UnknownStrategyError: It names a strategy that this version does not have.
        InvalidPlanError: It is a plan of another use case, its strategy can make nothing of it,
            or it does not fit this node.
    """
    name, use_case = host or node.node, request.workload.use_case
    stored = request.plan
    if request.plan_id is not None:
        stored = store.plans.get(request.plan_id)
    elif stored is None:
        stored = store.plans.best(
            known_as or use_case,
            fingerprint=node.fingerprint(),
            node=node.node,
            software=software,
        )
    if stored is None:
        raise make_missing_plan_error(use_case, f"on {name}", remedy)
    if stored.use_case != use_case and stored not in store.plans.find(known_as or use_case):
        raise InvalidPlanError(
            f"plan {stored.id} is for {stored.use_case}, not {use_case}: choose another"
        )
    reasons = stale_reasons(stored, fingerprint=node.fingerprint(), software=software)
    if reasons and not request.allow_stale:
        where = "" if host is None else f" on {host}"
        raise StalePlanError(
            f"plan {stored.id} is stale{where}, {', '.join(reasons)}: run "
            f"{remedy}{_as_searched(store, stored)}, or pass --allow-stale"
        )
    check_plan(stored.plan)
    stored.plan.check_fits(node.cpu.usable_cores)
    steps = _steps(store, stored)
    return NodePlan(host=name, node=node, stored=stored, steps=steps, reasons=reasons)


def _as_searched(store: Store, stored: StoredPlan) -> str:
    """Give what a search needs to choose as the one did that found a plan."""
    precision = None if stored.study_id is None else store.studies.precision_choice(stored.study_id)
    return "" if precision in (None, PRECISIONS[0]) else f" --precision {precision}"


def find_plans(
    store: Store,
    request: LaunchRequest,
    nodes: Mapping[str, Hardware],
    software: Mapping[str, str],
    *,
    remedy: str,
    known_as: str | None = None,
) -> list[NodePlan]:
    """Give the plan of every host, as `find_plan` does for one, with the same arguments.

    ``nodes`` are by the name that the host file has, in the order of the ranks.

    Raises:
        NoPlanError: None is stored for some of them; the message names them all.
        StalePlanError: One was made on other hardware or software.
        UnknownStrategyError: As in `find_plan`.
        InvalidPlanError: As in `find_plan`.
    """
    found, missing = [], []
    for host, node in nodes.items():
        try:
            plan = find_plan(
                store, request, node, software, remedy=remedy, host=host, known_as=known_as
            )
            found.append(plan)
        except NoPlanError:
            if request.plan_id is not None:
                raise
            missing.append(host)
    if missing:
        where = f"on {', '.join(missing)}"
        raise make_missing_plan_error(request.workload.use_case, where, remedy)
    return found


def charge_input(store: Store, request: LaunchRequest, plans: Sequence[NodePlan]) -> list[NodePlan]:
    """Charge each plan with reading the data on its node, where `probe` has measured that.

    Shares are chosen after that: until then they count as equal.
    """
    return [
        replace(
            plan, input=_input_cost(store, request, plan, 1 / len(plans)), epochs=request.epochs
        )
        for plan in plans
    ]


def share_input(plans: Sequence[NodePlan], chosen: Prediction) -> list[NodePlan]:
    """Let each host read the share that was chosen for it; one that has none reads nothing."""
    shares = dict(zip(chosen.hosts, chosen.batches, strict=True))
    return [
        replace(
            plan, input=_with_share(plan.input, shares.get(plan.host, 0) / sum(shares.values()))
        )
        for plan in plans
    ]


def _with_share(cost: InputCost | None, share: float) -> InputCost | None:
    return replace(cost, share=share) if cost is not None and share else None


def _input_cost(
    store: Store, request: LaunchRequest, plan: NodePlan, share: float
) -> InputCost | None:
    stored, path = plan.stored, request.workload.data
    if path is None or stored.study_id is None:
        return None
    data = store.machines.find_data_speed(plan.node, path)
    facts = store.studies.case_facts(stored.study_id)
    return assess_input(stored, facts, plan.node, data, share=share)


def make_job(
    request: LaunchRequest, prediction: Prediction, plans: Sequence[NodePlan], runs: Path
) -> Job:
    """Put together the job of the hosts of a prediction; nothing is written yet."""
    by_host = {plan.host: plan for plan in plans}
    shares = zip(prediction.hosts, prediction.batches, strict=True)
    nodes = [_node_job(by_host[host], share) for host, share in shares]
    return _job(request, nodes, [by_host[host] for host in prediction.hosts], runs)


def make_local_job(request: LaunchRequest, plan: NodePlan, runs: Path) -> Job:
    """Put a job of one node together: what the user asks for is its batch, however large."""
    batch = request.global_batch or plan.plan.node_batch
    return _job(request, [_node_job(plan, batch)], [plan], runs)


def _job(
    request: LaunchRequest, nodes: Sequence[NodeJob], plans: Sequence[NodePlan], runs: Path
) -> Job:
    scaling = request.lr_scaling or _common_scaling(nodes)
    return Job(
        workload=request.workload,
        nodes=tuple(replace(node, plan=replace(node.plan, lr_scaling=scaling)) for node in nodes),
        noise_cost_limit=COST_LIMIT if request.measures_noise else None,
        run_directory=str(runs),
        case_digests=_case_digests(plans),
        epochs=request.epochs,
        checkpoint=request.checkpoint,
        hang_timeout_s=request.hang_timeout_s,
        wire=request.wire,
        all_reduce=request.all_reduce,
        keep_shares=request.keep_shares,
        allow_nan=request.allow_nan,
        keep_best=request.keep_best,
        onnx=None if request.onnx is None else str(request.onnx.absolute()),
    )


def _case_digests(plans: Sequence[NodePlan]) -> tuple[str, ...]:
    """Give the digests of the use case when plans were found; none where one is not known."""
    found = [plan.stored.use_case_digest for plan in plans]
    known = {digest for digest in found if digest is not None}
    return () if None in found else tuple(sorted(known))


def _common_scaling(nodes: Sequence[NodeJob]) -> str:
    """Give the scaling of the learning rate that the plans of all hosts have.

    Raises:
        InvalidPlanError: They have different ones, and the hosts share one learning rate.
    """
    found = {node.plan.lr_scaling: node.host for node in nodes}
    if len(found) > 1:
        said = ", ".join(f"{scaling} on {host}" for scaling, host in sorted(found.items()))
        raise InvalidPlanError(
            f"the plans scale the learning rate differently ({said}): say how with --lr-scaling"
        )
    return next(iter(found))


def _node_job(plan: NodePlan, share: int) -> NodeJob:
    return NodeJob(
        host=plan.host,
        plan=replace(plan.plan, node_batch=share),
        step_time=plan.steps.step_time,
        max_batch=max(plan.max_batch, share),
        machine=plan.node.node,
        gpu_uuids=plan.node.gpu_uuids(plan.plan.devices),
    )


def _steps(store: Store, stored: StoredPlan) -> MeasuredSteps:
    """Give a plan's steps; for a plan of the first release what its study shows of them.

    With one batch alone, a step on a CPU gets the fixed part that such models have, and one on a
    GPU counts as proportional to its samples.
    """
    steps = stored.step_time
    if (steps is None or len(steps.points) < 2) and stored.study_id is not None:
        results = [trial.result for trial in store.studies.trials(stored.study_id)]
        steps = fit_measured_steps(stored.plan, results) or steps
    steps = steps or _single_point(stored)
    is_guess = len(steps.points) == 1 and stored.gradient_bytes and "cpu" in stored.plan.devices
    return add_fixed_cost(steps, stored.gradient_bytes or 0) if is_guess else steps


def _single_point(stored: StoredPlan) -> MeasuredSteps:
    batch = stored.plan.node_batch
    step_s = batch / stored.throughput_samples_per_s.median
    peak = stored.peak_memory_bytes
    point = StepPoint(node_batch=batch, step_s=step_s, peak_memory_bytes=peak)
    return steps_from_points([point])
