"""What does `ddlplan launch` do? It finds the plan, runs the job, and says how it went."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from launch.hosts.line import Host
from launch.run_directory import RunDirectory
from planner.commands.dry_run import describe_job, job_lines
from planner.commands.launch_hosts import launch_hosts
from planner.commands.next_step import next_command
from planner.commands.training import RUNS, outcome_json, say_trained, train
from planner.errors import NoDatabaseError, NoPlanError
from planner.interruption import survive_checkpoint_signals
from planner.job_making import LaunchRequest, find_plan, make_own_job
from planner.keeping import find_start
from planner.named_hosts import find_hosts, is_only_here
from planner.output import Output
from planner.placement import Placement
from planner.report.plan_line import describe_plan
from planner.restarts import run_with_restarts
from planner.software import current_software
from planner.store import Store
from probes.node import probe


@survive_checkpoint_signals()
def launch(request: LaunchRequest, db: str, out: Output, *, dry_run: bool) -> None:
    """Train with stored plans, on this machine or on the hosts that the user names."""

    def attempt(request: LaunchRequest, hosts: Sequence[Host] | None) -> None:
        request = find_start(request, out.warn)
        if request.resume is not None:
            out.note(f"going on from {request.resume}")
        if hosts is None:
            listed = find_hosts(request.hosts, os.environ)
            for note in listed.notes:
                out.warn(note)
            hosts = listed.hosts
        _launch(request, hosts, db, out, dry_run=dry_run)

    run_with_restarts(request, attempt, lambda: _find_good_hosts(request), out.warn)


def _launch(
    request: LaunchRequest, hosts: Sequence[Host], db: str, out: Output, *, dry_run: bool
) -> None:
    remedy = next_command(
        "tune",
        request.use_case,
        data=request.data,
        db=db,
        hosts=request.hosts,
        reach=request.reach,
    )
    with _needing_database(request, db, remedy):
        if is_only_here(hosts):
            _launch_here(request, hosts[0], remedy, db, out, dry_run=dry_run)
        else:
            launch_hosts(request, hosts, remedy, db, out, dry_run=dry_run)


def _find_good_hosts(request: LaunchRequest) -> Sequence[Host]:
    """Give the hosts that pass their checks now."""
    hosts = find_hosts(request.hosts, os.environ).hosts
    if is_only_here(hosts):
        return hosts
    checked = request.reach.check(hosts, use_case=request.use_case, data=request.data, runs=RUNS)
    return checked.good or hosts  # where none is, the next attempt says why


def _launch_here(
    request: LaunchRequest, host: Host, remedy: str, db: str, out: Output, *, dry_run: bool
) -> None:
    node, software = probe(quick=True), current_software()
    with Store.open(db, create=False) as store:
        plan = find_plan(store, request, node, software, remedy=remedy)
    plan = replace(plan, host=host.name)
    stored = plan.stored
    job = make_own_job(request, plan, RunDirectory.next_of(RUNS).path)
    placement = Placement(hosts=(host,), reach=request.reach)
    if dry_run:
        described = describe_job(job, [node], os.environ, placement)
        for line in job_lines(job, described, [stored.id]):
            out.say(line)
        out.finish(described)
        return
    request.reach.check_root()
    used = replace(stored, plan=job.nodes[0].plan)
    remark = f" (stale, {', '.join(plan.reasons)})" if plan.reasons else ""
    out.note(f"plan {used.id}{remark}: {describe_plan(used.plan)}")
    training = train(job, placement, out)
    # Evidence of a plan that the user has changed says nothing of this job.
    expected = stored.throughput_samples_per_s.median if used == stored else None
    cause = "the plan's trials: another process may be using the cores; if it always is, tune again"
    say_trained(training, expected, out, verb="expected", remedy=cause)
    shown = used.to_json(stale=bool(plan.reasons))
    out.finish({"plan": shown, **outcome_json(training, expected)})


@contextmanager
def _needing_database(request: LaunchRequest, db: str, remedy: str) -> Iterator[None]:
    try:
        yield
    except NoDatabaseError as error:
        raise NoPlanError(f"no plan for {request.use_case} in {db}: run {remedy}") from error
