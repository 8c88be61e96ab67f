"""What does `ddlplan launch` do on several hosts? It gives each its share, or leaves it out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from launch.errors import HostUnreachableError
from launch.hosts.checked import HostsChecked
from launch.hosts.line import Host
from launch.job import Job
from launch.run_directory import RunDirectory
from planner.cluster import Verdict, judge
from planner.commands.dry_run import describe_job, job_lines
from planner.commands.links_between import measure_between
from planner.commands.next_step import next_command
from planner.commands.on_hosts import check_each, check_world, show_table
from planner.commands.training import RUNS, outcome_json, say_trained, train
from planner.exchange_time import Exchange
from planner.job_making import (
    LaunchRequest,
    NodePlan,
    cluster_nodes,
    find_plans,
    keep_shares,
    make_job,
)
from planner.links import MeasuredLinks
from planner.output import Output
from planner.placement import Placement
from planner.prediction import ClusterNode
from planner.report.cluster import (
    SHARE_COLUMNS,
    SUBSET_COLUMNS,
    share_rows,
    subset_rows,
    verdict_json,
    verdict_lines,
)
from planner.software import current_software
from planner.store import Store
from planner.stored_plan import iso_utc
from probes.hardware import Hardware


def launch_hosts(
    request: LaunchRequest,
    hosts: Sequence[Host],
    remedy: str,
    db: str,
    out: Output,
    *,
    dry_run: bool,
) -> None:
    """Train on those of the hosts that are fastest together, each with its own plan and share.

    Raises:
        HostUnreachableError: A host failed its checks.
        NoPlanError: There is no plan for a host.
        StalePlanError: A host's plan was made on other hardware or software.
        InvalidPlanError: The hosts cannot take the global batch.
    """
    with Store.open(db, create=False) as store:  # first: without plans nobody need be asked
        use_case, data = request.use_case, request.data
        checked = check_each(hosts, request.reach, out, use_case=use_case, data=data, runs=RUNS)
        if not dry_run:
            request.reach.check_root()
        nodes = {host.name: _hardware(checked, host) for host in checked.ranked}
        plans = find_plans(store, request, nodes, current_software(), remedy=remedy)
        links = store.latest_links({host: node.fingerprint() for host, node in nodes.items()})
    gradient_bytes = _gradient_bytes(plans)
    chooses = len(plans) > 1 and not (request.all_hosts or request.kept_shares)
    is_joined = False
    if links is None and gradient_bytes is not None and chooses and not dry_run:
        links = measure_between(checked, request.reach, db, gradient_bytes, out)
        is_joined = links is not None
    verdict = _judge(request, plans, links, gradient_bytes, out)
    job = make_job(request, verdict.chosen, plans, RunDirectory.next_of(RUNS).path)
    placement = Placement.of(checked, verdict.chosen.hosts, request.reach)
    probes = next_command("probe", db=db, hosts=request.hosts, reach=request.reach)
    _say_plans(plans, verdict, probes, out, to_stdout=dry_run)
    if dry_run:
        _say_job(job, nodes, plans, verdict, placement, out)
        return
    if not is_joined:
        check_world(checked, request.reach, out, verdict.chosen.hosts)
    training = train(job, placement, out)
    predicted = verdict.chosen.throughput_samples_per_s
    expected = predicted if verdict.knows_network else None
    measured = training.throughput_samples_per_s
    if expected is None and measured is not None:
        out.say(f"predicted  at most {predicted:.1f} samples/s, measured {measured:.1f}")
    cause = f"predicted: a node or a link may be busy; {probes} measures the links anew"
    say_trained(training, expected, out, verb="predicted", remedy=cause)
    shown = _cluster_json(plans, verdict, links)
    out.finish({**shown, **outcome_json(training, expected)})


def _hardware(checked: HostsChecked, host: Host) -> Hardware:
    hardware = checked.facts[host.name].hardware
    if hardware is None:
        raise HostUnreachableError(f"host {host.name}: it cannot say what hardware it has")
    return hardware


def _judge(
    request: LaunchRequest,
    plans: Sequence[NodePlan],
    links: MeasuredLinks | None,
    gradient_bytes: int | None,
    out: Output,
) -> Verdict:
    nodes, untried = cluster_nodes(plans, request.global_batch)
    kept = keep_shares(nodes, request.kept_shares or {})
    if kept is not None:
        out.note(_kept_line(nodes, kept))
    elif request.kept_shares:
        out.note("shares are given anew: a host or a plan of the checkpoint is another one now")
    if untried:
        out.warn(
            f"--global-batch {request.global_batch} is more than was tried on "
            f"{', '.join(untried)}: memory may not suffice there"
        )
    if gradient_bytes is None and links is not None and len(plans) > 1:
        out.warn(
            "the plans do not say how large the gradients are, as those of older versions: tune "
            "again, so that the network is counted"
        )
    is_rounded = request.wire != "fp32"
    return judge(
        nodes if kept is None else kept,
        None if links is None or not links.links else Exchange(links, is_rounded=is_rounded),
        gradient_bytes,
        global_batch=request.global_batch,
        all_hosts=request.all_hosts or kept is not None,
    )


def _gradient_bytes(plans: Sequence[NodePlan]) -> int | None:
    """Give what a node exchanges in a step, where a plan knows it."""
    known = [p.stored.gradient_bytes for p in plans if p.stored.gradient_bytes is not None]
    return max(known, default=None)


def _kept_line(nodes: Sequence[ClusterNode], kept: Sequence[ClusterNode]) -> str:
    """Say whose shares are kept, and how hosts that have none would get one."""
    line = "hosts and shares are those of the checkpoint"
    used = {node.host for node in kept}
    if left := [node.host for node in nodes if node.host not in used]:
        batch = sum(node.floor for node in kept)
        line += f", without {', '.join(left)}: --global-batch {batch} shares anew over all hosts"
    return line


def _say_plans(
    plans: Sequence[NodePlan], verdict: Verdict, probes: str, out: Output, *, to_stdout: bool
) -> None:
    """Show what each host would do, and why these hosts.

    It is the answer of a dry run; of a training it is what comes before the answer.
    """
    for plan in plans:
        if plan.reasons:
            out.warn(f"plan {plan.stored.id} on {plan.host} is stale, {', '.join(plan.reasons)}")
    say = out.say if to_stdout else out.note
    show_table(share_rows(plans, verdict), SHARE_COLUMNS, out, to_stdout=to_stdout)
    if len(verdict.predictions) > 1:
        say("")
        show_table(subset_rows(verdict), SUBSET_COLUMNS, out, to_stdout=to_stdout)
    say("")
    for line in verdict_lines(verdict, probes):
        say(line)


def _say_job(
    job: Job,
    nodes: dict[str, Hardware],
    plans: Sequence[NodePlan],
    verdict: Verdict,
    placement: Placement,
    out: Output,
) -> None:
    described = describe_job(job, [nodes[part.host] for part in job.nodes], os.environ, placement)
    ids = {plan.host: plan.stored.id for plan in plans}
    out.say("")
    for line in job_lines(job, described, [ids[part.host] for part in job.nodes]):
        out.say(line)
    out.finish({**described, "verdict": verdict_json(verdict)})


def _cluster_json(
    plans: Sequence[NodePlan], verdict: Verdict, links: MeasuredLinks | None
) -> dict[str, Any]:
    return {
        "plans": [
            {"host": plan.host, **plan.stored.to_json(stale=bool(plan.reasons))} for plan in plans
        ],
        "verdict": verdict_json(verdict),
        "network_measured_at": None if links is None else iso_utc(links.measured_at),
    }
