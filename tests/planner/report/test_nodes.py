"""Tables of nodes and of the links between them."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from planner.cluster.links import HostAllReduce, HostLink, MeasuredLinks
from planner.plans.stored_plan import utc_now
from planner.report.nodes import (
    LINK_COLUMNS,
    PLAN_COLUMNS,
    format_latency,
    format_rate,
    link_notes,
    link_rows,
    plan_row,
)
from planner.report.table import Terminal, render_table


def measured(count, sums=()):
    names = tuple(f"node{number}" for number in range(1, count + 1))
    links = tuple(
        HostLink(first=one, second=other, latency_s=5e-5, bytes_per_s=1e8 / (number + 1))
        for number, (one, other) in enumerate(combinations(names, 2))
    )
    return MeasuredLinks(
        hosts=names, fingerprints=("",) * count, measured_at=utc_now(), links=links, sums=sums
    )


@pytest.mark.parametrize(
    ("bytes_per_s", "shown"), [(117.5e6, "0.940 Gb/s"), (3e9, "24.0 Gb/s"), (1e6, "0.00800 Gb/s")]
)
def test_bandwidth_is_shown_as_networks_are_sold(bytes_per_s, shown):
    assert format_rate(bytes_per_s) == shown


@pytest.mark.parametrize(
    ("latency_s", "shown"), [(4.31e-5, "43.1 us"), (2.5e-3, "2.50 ms"), (1.2, "1.20 s")]
)
def test_latency_is_shown_in_a_unit_of_its_size(latency_s, shown):
    assert format_latency(latency_s) == shown


def test_every_link_of_a_few_hosts_is_a_row():
    rows = link_rows(measured(3))
    assert [row["between"] for row in rows] == ["node1 - node2", "node1 - node3", "node2 - node3"]
    assert list(link_notes(measured(3))) == []


def test_of_many_links_the_slowest_are_shown_and_the_others_counted():
    rows = link_rows(measured(8))
    assert len(rows) == 12
    assert rows[0]["between"] == "node7 - node8"
    assert list(link_notes(measured(8))) == ["and 16 faster links"]


def test_sums_are_said_with_their_size():
    one = HostAllReduce(
        message_bytes=4 * 2**20, time_s=0.0341, cpu_s=(0.01, 0.01), interrupts_s=(0.0, 0.0)
    )
    said = "summing 4.00 MiB over all hosts takes 34.1 ms"
    assert list(link_notes(measured(2, (one,)))) == [said]
    slowed = replace(one, beside_s=0.052)
    assert list(link_notes(measured(2, (slowed,)))) == [f"{said}, 52.0 ms while they compute"]


def test_tables_fit_80_columns_and_a_node_without_a_plan_has_its_reason():
    rows = [plan_row("a-host-with-a-long-name", None, 3, "no trial succeeded: " + "why " * 30)]
    lines = render_table(rows, PLAN_COLUMNS, Terminal(width=80)).splitlines()
    lines += render_table(link_rows(measured(3)), LINK_COLUMNS, Terminal(width=80)).splitlines()
    assert max(map(len, lines)) <= 80
    assert "no trial succeeded" in lines[2]
