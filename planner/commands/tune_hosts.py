"""What does `ddlplan tune --hosts` do? All nodes search at once; each gets a plan of its own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from launch.errors import HostUnreachableError, UseCaseError
from launch.hosts.file import HostList
from planner.commands.next_step import next_command
from planner.commands.on_hosts import check_together, failure_json, show_network, show_table
from planner.commands.tune import tuned_json
from planner.errors import NoPlanError
from planner.output import Output
from planner.quantities import format_duration
from planner.reach import Reach
from planner.report.nodes import (
    PLAN_COLUMNS,
    links_json,
    plan_row,
)
from planner.report.table import Row
from planner.report.together_lines import TogetherLines
from planner.software import current_software
from planner.store import Store
from planner.together.campaign import Campaign
from planner.together.gathering import Gathering, LazyStore, NodeState
from planner.together.task import Purpose
from planner.tune_request import TuneRequest


def tune_hosts(
    request: TuneRequest,
    listed: HostList,
    hosts: Path | None,
    reach: Reach,
    db: str,
    out: Output,
) -> None:
    """Search on every host and say what was found.

    Args:
        request: What the user asks of the search.
        listed: The hosts.
        hosts: The file that lists them; ``None`` where Slurm does.
        reach: How they are reached.
        db: Where plans are kept.
        out: Where to say it.

    Raises:
        HostUnreachableError: A host failed its checks, before anything was started.
        NoPlanError: No node got a plan.
    """
    started = time.monotonic()
    Store.check_place(db)
    checked = check_together(listed, reach, out, use_case=request.use_case, data=request.data)
    names = [host.name for host in checked.ranked]
    interrupted = False
    with LazyStore(db) as store, TogetherLines(out, names, f"tuning {len(names)} nodes") as lines:
        nodes = {name: NodeState(host=name) for name in names}
        gathering = Gathering(store, current_software(), lines, request, nodes)
        try:
            Campaign(Purpose.TUNE, checked, reach, gathering).run()
        except KeyboardInterrupt:
            interrupted = True
        gathering.conclude(interrupted=interrupted)
    elapsed_s = time.monotonic() - started
    states = list(gathering.nodes.values())
    _warn(states, out, interrupted=interrupted)
    if not any(node.outcome for node in states):
        if interrupted:
            raise KeyboardInterrupt
        raise _no_plan(states)
    if gathering.links is None and not interrupted:
        measures = next_command("probe", db=db, hosts=hosts, reach=reach)
        out.warn(f"the network was not measured: {measures} does it")
    then = next_command(
        "launch", request.use_case, data=request.data, db=db, hosts=hosts, reach=reach
    )
    _say_tuned(gathering, elapsed_s, then, out, interrupted=interrupted)
    out.finish(
        {
            "nodes": [_node_json(node, elapsed_s) for node in states],
            "network": links_json(gathering.links),
            "elapsed_s": elapsed_s,
            "interrupted": interrupted,
        }
    )
    if interrupted:
        raise KeyboardInterrupt


def _say_tuned(
    gathering: Gathering, elapsed_s: float, then: str, out: Output, *, interrupted: bool
) -> None:
    show_table([_row(node) for node in gathering.nodes.values()], PLAN_COLUMNS, out)
    show_network(gathering, out)
    out.say("")
    out.say(f"time       {format_duration(elapsed_s)}")
    out.say(f"next       {then}")
    if interrupted:
        out.note("stopped early: the same command goes on from here")


def _row(node: NodeState) -> Row:
    stored = None if node.outcome is None else node.outcome.plan
    trials = 0 if node.outcome is None else len(node.outcome.trials)
    return plan_row(node.host, stored, trials, node.failure.message if node.failure else "")


def _warn(states: Sequence[NodeState], out: Output, *, interrupted: bool) -> None:
    for node in states:
        if node.failure is not None and not node.failure.is_lost:  # those were said at once
            out.warn(f"{node.host}: {node.failure.message}")
        elif node.outcome is None and not interrupted:
            out.warn(f"{node.host}: it was not heard to the end: tune again")
        for warning in () if node.outcome is None else node.outcome.warnings:
            out.warn(f"{node.host}: {warning}")


def _no_plan(states: Sequence[NodeState]) -> Exception:
    """Give the error of a job in which no node got a plan: the first cause, and how many more."""
    failed = [(node.host, node.failure) for node in states if node.failure is not None]
    if not failed:
        return NoPlanError("no node got a plan: raise --budget")
    host, first = failed[0]
    more = f" (and {len(failed) - 1} more nodes)" if len(failed) > 1 else ""
    message = f"{host}: {first.message}{more}"
    kinds: dict[int, type[Exception]] = {2: UseCaseError, 4: HostUnreachableError}
    codes = {failure.code for _, failure in failed}
    return (kinds.get(first.code, NoPlanError) if len(codes) == 1 else NoPlanError)(message)


def _node_json(node: NodeState, elapsed_s: float) -> dict[str, Any]:
    head = {"host": node.host, "error": failure_json(node.failure)}
    if node.outcome is None:
        return head
    return head | tuned_json(node.outcome, elapsed_s, node.pixel_bytes)
