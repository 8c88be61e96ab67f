"""A choice of nodes in words, in tables and as JSON."""

from __future__ import annotations

from planner.cluster.node_choice import TIE
from planner.report.node_choice import (
    SHARE_COLUMNS,
    SUBSET_COLUMNS,
    choice_json,
    choice_lines,
    share_rows,
    subset_rows,
)
from planner.report.table import Terminal, render_table
from tests.planner.jobs.host_plans import exchange, verdict_of


def said(verdict) -> str:
    return "\n".join(choice_lines(verdict, "ddlplan probe --hosts hosts.txt"))


def test_what_each_node_is_worth_is_said(both):
    text = said(verdict_of(both, exchange()))
    assert text.startswith("n1, n2 train together: ")
    assert "n2 adds 18 %" in text


def test_node_that_would_slow_the_job_is_named(both):
    text = said(verdict_of(both, exchange(5e7)))
    assert text.startswith("n1 alone is fastest: 80.0 samples/s predicted")
    assert "leave n2 out: it would slow the job by " in text


def test_hosts_that_the_user_insists_on_are_used_and_their_price_is_named(both):
    text = said(verdict_of(both, exchange(5e7), all_hosts=True))
    assert "all hosts are used because that was asked for: n1 alone would be " in text
    assert "n2 slows the job by " in text


def test_fewer_hosts_that_would_be_as_fast_are_named_without_a_number(both):
    rates = (5e7 * 1.005**i for i in range(1000))
    verdicts = (verdict_of(both, exchange(rate), all_hosts=True) for rate in rates)
    text = said(next(found for found in verdicts if 0 < found.gains[1].gain < TIE))
    assert "n1 alone would be as fast" in text
    assert "n2 adds less than 2 %, which none can tell" in text


def test_network_that_was_not_measured_is_said_with_the_way_out(both):
    text = said(verdict_of(both))
    assert text.startswith("all 2 hosts are used, at most 99.9 samples/s")
    assert "ddlplan probe --hosts hosts.txt" in text


def test_tables_show_shares_and_subsets(both):
    verdict = verdict_of(both, exchange())
    shares = render_table(share_rows(both, verdict), SHARE_COLUMNS, Terminal())
    assert [line.split()[0] for line in shares.splitlines()] == ["HOST", "n1", "n2"]
    subsets = render_table(subset_rows(verdict), SUBSET_COLUMNS, Terminal()).splitlines()
    assert len(subsets) == 4
    assert subsets[1].startswith("*  n1 n2")
    left_out = verdict_of(both, exchange(1e6))
    assert "none" in render_table(share_rows(both, left_out), SHARE_COLUMNS, Terminal())


def test_node_choice_in_json_has_every_subset(both):
    document = choice_json(verdict_of(both, exchange()))
    assert document["chosen"]["hosts"] == ["n1", "n2"]
    assert sum(document["chosen"]["node_batches"]) == document["chosen"]["global_batch"] == 256
    assert len(document["subsets"]) == 3
    assert [node["host"] for node in document["nodes"]] == ["n1", "n2"]
