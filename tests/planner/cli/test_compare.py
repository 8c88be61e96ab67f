"""``ddlplan compare``: real peers take turns with a real plan."""

from __future__ import annotations

import json
import signal

import pytest

from planner.peers import peer_names

QUICK = ("--starts", 1, "--budget", "1s", "--turn", "0.2s", "--loader-workers", 0)


def peers_of(data):
    return {result["peer"]: result for result in data["peers"]}


def test_unknown_peer_is_one_line_with_the_names(ddlplan):
    error = ddlplan.run("compare", "--with", "ddq").refusal()
    assert "unknown peer 'ddq': did you mean ddp?" in error
    assert all(name in error for name in peer_names())


def test_without_any_plan_the_search_is_named_and_nothing_said_of_one_for_the_batch(ddlplan):
    """A warning said which plan ours is, and then there was none."""
    ended = ddlplan.run("compare", "--with", "plain", "--batch-size", 8)
    assert "ddlplan tune --use-case simplebig" in ended.refusal(3)
    assert "ours is the best plan" not in ended.err


def test_data_loading_processes_that_no_host_could_use_are_refused(tuned):
    """With a plan, which is not one of simplebig: it knows its use case."""
    refused = tuned.run("compare", "--plan", 1, "--with", "plain", "--loader-workers", 10**6)
    assert "--loader-workers 1000000 and usable_cores=" in refused.refusal()


@pytest.mark.long
def test_peers_that_come_with_pytorch_take_turns_with_our_plan(tuned, cases):
    data = tuned.data(
        *("compare", "--use-case", f"{cases}:Steady", "--with", "plain,ddp"),
        *("--settings", "defaults", "--html", "page.html", *QUICK),
    )
    found = peers_of(data)
    assert [result["error"] for result in found.values()] == [None] * 2
    for name, result in found.items():
        assert len(result["rounds"]) >= 2, name
        ratio = result["ours_per_peer"]
        assert ratio["ci_low"] <= ratio["median"] <= ratio["ci_high"]
        assert result["start_s"][0] > 0
        assert result["time_shares"]["update"] is not None
    assert found["plain"]["time_shares"]["exchange"] is None
    assert found["ddp"]["processes"] > 1
    assert found["ddp"]["time_shares"]["exchange"] is not None
    assert data["ours"]["plans"][0]["id"] == 1
    assert data["fastest"]["defaults"]["peer"] in found
    assert (tuned.folder / "page.html").read_text().startswith("<!doctype html>")


@pytest.mark.long
def test_a_peer_that_dies_is_a_row_with_its_reason_and_leaves_nothing(tuned, import_for, cases):
    plan = import_for("DiesInPeers")
    ended = tuned.run(
        *("compare", "--use-case", f"{cases}:DiesInPeers", "--with", "plain", "--plan", plan),
        *("--settings", "defaults", *QUICK),
    )
    assert ended.code == 0, ended.err
    assert "ArithmeticError: no peer can count" in ended.out
    assert "none trained" in ended.out
    tuned.wait_until_all_ended()


@pytest.mark.long
def test_what_was_measured_is_shown_where_our_own_training_fails(tuned, import_for, cases):
    plan = import_for("DiesInOurs")
    ended = tuned.run(
        *("compare", "--use-case", f"{cases}:DiesInOurs", "--with", "plain", "--plan", plan),
        *("--settings", "defaults", *QUICK, "--budget", "600s", "--json", "--html", "page.html"),
    )
    assert ended.code == 1, ended.err
    document = json.loads(ended.out)
    assert "ours cannot count so far" in document["error"]["message"]
    assert document["data"]["failure"] == document["error"]["message"]
    assert document["data"]["peers"][0]["rounds"]
    assert "ours cannot count so far" in (tuned.folder / "page.html").read_text()
    tuned.wait_until_all_ended()


@pytest.mark.long
def test_ctrl_c_shows_what_was_measured_and_ends_everything(tuned, cases):
    process = tuned.start(
        *("compare", "--use-case", f"{cases}:Steady", "--with", "ddp", "--settings", "defaults"),
        *("--budget", "600s", "--loader-workers", 0),
    )
    tuned.wait_until(lambda: tuned.processes("torchrun_ddp.py"), "no peer begins")
    process.send_signal(signal.SIGINT)
    ended = tuned.end(process)
    assert ended.code == 130
    tuned.wait_until_all_ended()
