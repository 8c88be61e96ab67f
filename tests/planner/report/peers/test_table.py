"""A comparison as a table, CSV, JSON and a page."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

from launch.plan import Plan
from planner.errors import TrainingFailedError
from planner.peer_runs.request import Setting
from planner.peer_runs.result import ComparedHost, Comparison, PeerResult
from planner.peer_runs.turns import Round, Turn
from planner.plans.stored_plan import utc_now
from planner.report.peers.page import comparison_page
from planner.report.peers.table import comparison_csv, comparison_text
from planner.report.table import Terminal


def turn(rate, exchange_s=None):
    return Turn(time_s=2.0, samples=2 * rate, loading_s=0.1, exchange_s=exchange_s, update_s=None)


def ran(peer, rates, setting=Setting.DEFAULTS):
    return PeerResult(
        peer=peer,
        setting=setting,
        version="2.1",
        processes=2,
        threads=1,
        start_s=(5.0, 7.0),
        rounds=tuple(Round(ours=turn(30), peer=turn(rate, 0.5)) for rate in rates),
    )


MISSING = PeerResult(
    peer="ray", setting=Setting.DEFAULTS, version=None, reason="not installed: pip <b>it</b>"
)
FOUND = Comparison(
    use_case="simplebig",
    created_at=utc_now(),
    hosts=(ComparedHost(name="vm", cpu="EPYC", cores=2),),
    node_batch=32,
    plans=(Plan(strategy="threads", node_batch=32, threads_per_process=2),),
    plan_ids=(7,),
    software={"torch": "2.15.0"},
    start_s=(4.0,),
    results=(ran("ddp", (10, 11, 10)), ran("plain", (20, 21, 20)), MISSING),
)


def test_the_fastest_peer_is_the_one_that_ours_beats_least():
    fastest = FOUND.fastest(Setting.DEFAULTS)
    assert fastest.peer == "plain"
    assert 1.3 < fastest.ratio.low < fastest.ratio.median < fastest.ratio.high < 1.7


def test_one_disturbed_turn_does_not_decide():
    rates = (20, 21, 20, 20, 21, 20, 20, 21, 20)
    usual, disturbed = ran("plain", rates).ratio, ran("plain", (*rates, 2)).ratio
    assert abs(disturbed.median / usual.median - 1) < 0.01
    assert disturbed.high < 1.6


def test_one_round_alone_has_no_ratio():
    once = replace(FOUND, results=(ran("plain", (20,)),))
    assert once.fastest(Setting.DEFAULTS) is None
    assert json.loads(json.dumps(once.to_json()))["peers"][0]["ours_per_peer"] is None


def test_a_peer_with_one_round_has_trained():
    """Ctrl-C after the first round of a peer said "none trained" below its samples per second."""
    text = comparison_text(replace(FOUND, results=(ran("plain", (20,)),)), Terminal())
    assert "too few rounds to compare" in text
    assert "none trained" not in text


def test_table_has_a_row_for_each_peer_and_the_reason_of_those_that_did_not_train():
    text = comparison_text(FOUND, Terminal())
    lines = text.splitlines()
    assert lines[2].startswith("ddp ")
    assert "not installed" in lines[4]
    assert "plain: ours is 1.4" in text
    assert "25 %" in lines[2]
    assert "6.0 s" in lines[2]


def test_ours_loses_its_time_in_the_same_columns_as_its_peers():
    """The table named parts of the peers' steps alone: ours stood below, in words."""
    header, own, *_ = comparison_text(FOUND, Terminal()).splitlines()
    assert own.split()[:2] == ["ours", "30.0"]
    assert own[header.index("LOAD") :].split()[:4] == ["5", "%", "-", "-"]
    assert "4.0 s" in own
    assert '<th scope="row">ours</th><td></td>' in comparison_page(FOUND)


def test_an_interval_that_holds_one_says_that_nothing_is_decided():
    """A disturbed minute gave "0.591 (0.0655 to 5.33) times as fast", and nothing more was said."""
    noisy = replace(FOUND, results=(ran("plain", (20, 90, 25)),))
    text = comparison_text(noisy, Terminal())
    assert "which one is faster is open: raise --budget or --starts" in text
    assert "is open" not in comparison_text(FOUND, Terminal())


def test_table_fits_a_terminal_of_80_columns():
    longest = replace(ran("spark_map_reduce", (10, 11, 10)), start_s=(41.5,))
    text = comparison_text(replace(FOUND, results=(longest, MISSING)), Terminal(width=80))
    assert "START" in text
    assert max(map(len, text.splitlines())) <= 80


def test_json_has_ratios_with_intervals_and_all_rounds():
    document = json.loads(json.dumps(FOUND.to_json(), allow_nan=False))
    assert set(document["peers"][0]["ours_per_peer"]) == {"median", "ci_low", "ci_high", "samples"}
    assert document["peers"][0]["time_shares"]["exchange"] == 0.25
    assert document["peers"][0]["time_shares"]["update"] is None
    assert len(document["peers"][0]["rounds"]) == 3
    assert document["peers"][2]["error"] == "not installed: pip <b>it</b>"
    assert document["peers"][2]["ours_per_peer"] is None
    assert document["fastest"]["defaults"]["peer"] == "plain"
    assert document["fastest"]["ours"] is None
    assert document["ours"]["plans"][0]["id"] == 7


def test_data_that_the_use_case_made_up_are_marked():
    assert "generated" not in comparison_text(FOUND, Terminal())
    made_up = replace(FOUND, is_generated=True)
    assert "data                     generated:" in comparison_text(made_up, Terminal())
    assert made_up.to_json()["is_generated"] is True
    for found, text in ((FOUND, ""), (made_up, "generated")):
        rows = csv.DictReader(comparison_csv(found).splitlines())
        assert {row["data"] for row in rows} == {text}


def test_where_our_own_training_failed_the_reason_stands_beside_what_was_measured():
    failed = replace(FOUND, failure=TrainingFailedError("our own plan: out of <memory>"))
    text = comparison_text(failed, Terminal())
    assert "out of <memory>" in text
    assert "plain: ours is 1.4" in text
    assert "out of &lt;memory&gt;" in comparison_page(failed)
    assert failed.to_json()["failure"] == "our own plan: out of <memory>"


def test_csv_has_a_line_for_ours_and_each_peer():
    rows = list(csv.DictReader(comparison_csv(FOUND).splitlines()))
    assert [row["peer"] for row in rows] == ["ours", "ddp", "plain", "ray"]
    assert float(rows[1]["ours_per_peer_low"]) < float(rows[1]["ours_per_peer"])
    assert rows[3]["error"].startswith("not installed")


def test_page_escapes_what_a_peer_says_and_links_nowhere():
    page = comparison_page(FOUND)
    assert "<b>it" not in page
    assert "&lt;b&gt;it" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert page.count("<svg") == 2


def test_page_names_the_column_beside_each_value_for_a_phone():
    """A table of ten columns was there alone: each line of a reason was wider than a phone."""
    page = comparison_page(FOUND)
    assert page.count('<td data-label="ours / it">') == 2
    assert 'data-label="reason">not installed' in page
    assert "@media (max-width: 40rem)" in page
    assert 'tabindex="0" role="region" aria-label="Peers at their defaults"' in page


def test_page_and_table_of_a_comparison_in_which_nothing_trained():
    nothing = replace(FOUND, results=(MISSING,), start_s=())
    assert "none trained" in comparison_text(nothing, Terminal())
    assert "not installed" in comparison_page(nothing)
