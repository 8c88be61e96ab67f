"""Hosts together: the network measured, every subset predicted, and launches beside that."""

from __future__ import annotations

from collections.abc import Sequence

from planner.api import machines, names, together, trainings
from planner.api.together import HostsTogether
from planner.cluster.links import MeasuredLinks
from planner.cluster.node_choice import NodeChoice
from planner.jobs.making import NodePlan
from planner.jobs.suggested_command import name_database
from planner.records.training_record import TrainingRecord
from planner.report.figures.figure import drawn_figures
from planner.report.figures.hosts_figures import (
    gains_figure,
    launches_figure,
    subsets_figure,
    sums_figure,
)
from planner.report.node_choice import choice_lines, share_rows
from planner.report.table import Row
from planner.service.pages.query import find_number, find_text
from planner.service.pages.view import Context, PageRequest, View

_MOST_NETWORKS, _MOST_LINKS, _MOST_LAUNCHES, _LOOKED_AT = 12, 66, 10, 60
_PROBES = "ddlplan probe --hosts FILE"


def show(request: PageRequest, context: Context) -> View:
    """Show what hosts reach together."""
    use_case, hosts = find_text(request, "use_case"), find_text(request, "hosts")
    global_batch = find_number(request, "global_batch")
    found = together.predict(
        use_case,
        hosts=None if hosts is None else hosts.split(","),
        global_batch=global_batch,
        db=context.db,
    )
    described = {} if found is None else _describe(found, context)
    return View(
        template="hosts.html",
        title="Hosts together",
        values={"found": found, "hosts": hosts, "global_batch": global_batch, **described},
        topics=["links", "plan", "machine", "training"],
    )


def _describe(found: HostsTogether, context: Context) -> dict[str, object]:
    choice, launches = found.choice, _find_launches(found, context)
    probes = name_database(_PROBES, context.db)
    drawn = [launches_figure(launches)]
    if choice is not None:
        drawn = [subsets_figure(choice), gains_figure(choice), *drawn]
    return {
        "lines": [] if choice is None else list(choice_lines(choice, probes)),
        "shares": [] if choice is None else _shares(found.plans, choice),
        "stale": {one.host: one.reasons for one in found.plans if one.reasons},
        "figures": drawn_figures(*drawn),
        "network_figures": drawn_figures(sums_figure(found.network)),
        "networks": _distinct([found.network, *machines.find_networks(db=context.db)]),
        "use_cases": names.find_use_cases(db=context.db),
        "has_launches": bool(launches),
        "most_links": _MOST_LINKS,
    }


def _shares(plans: Sequence[NodePlan], choice: NodeChoice) -> list[tuple[Row, float]]:
    """Give each host's row, with its part of the global batch."""
    chosen = choice.chosen
    parts = dict(zip(chosen.hosts, chosen.batches, strict=True))
    return [
        (row, parts.get(row["host"], 0) / chosen.global_batch) for row in share_rows(plans, choice)
    ]


def _find_launches(found: HostsTogether, context: Context) -> list[TrainingRecord]:
    """Give the latest trainings of a use case on several of a network's hosts."""
    if found.use_case is None:
        return []
    latest = trainings.find(found.use_case, most=_LOOKED_AT, db=context.db)
    here = set(found.network.hosts)
    return [
        one for one in latest if len(one.hosts) > 1 and {host.host for host in one.hosts} <= here
    ][:_MOST_LAUNCHES]


def _distinct(networks: Sequence[MeasuredLinks]) -> list[MeasuredLinks]:
    """Give the first measurement of each set of hosts, a few."""
    latest: dict[tuple[str, ...], MeasuredLinks] = {}
    for one in networks:
        latest.setdefault(tuple(sorted(one.hosts)), one)
    return list(latest.values())[:_MOST_NETWORKS]
