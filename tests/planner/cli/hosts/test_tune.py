"""`ddlplan tune --hosts` as people run it on a few hosts, and lose one of them."""

from __future__ import annotations

import shutil
import signal
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from testbed import Testbed

from planner.store import Store

CASES = Path(__file__).parents[2] / "steady_cases.py"
SHORT = ("--budget", "40s", "--trials", 1)
BOTH = ("node1", "node2")
SEARCHED = {"search", "look"}
"""Roles of trials whose plans a search has drawn: looks where a step seemed to take long."""


def know_hosts(command, tuned_folder, names):
    """Give a database that knows this machine's hardware as the hosts': none waits for a probe."""
    shutil.copy(tuned_folder / "planner.db", command.folder / "planner.db")
    with Store.open(str(command.folder / "planner.db")) as store:
        (plan,) = store.plans.find()
        known = store.machines.latest_probe(plan.fingerprint, node=plan.node)
        store.plans.remove(plan.id)
        for name in names:
            store.machines.save_probe(replace(known, node=name))


def tune(begin, command, bed, case, *arguments):
    words = ("tune", "--use-case", f"{CASES}:{case}", *bed.options(command.folder))
    return begin(*words, "--strategies", "sequential,threads", "--json", *arguments)


def roles(command, node):
    of_node = f"FROM trials JOIN studies ON studies.id = study_id WHERE node = '{node}'"
    return [role for (role,) in command.query(f"SELECT role {of_node} ORDER BY trials.id")]


def wait_for_plans(command, process):
    """Wait until a plan of each host is known, or the search has ended."""
    command.wait_until(
        lambda: all(map(command.has_plan, BOTH)) or process.poll() is not None,
        "a plan of each host",
    )


@pytest.fixture(scope="module")
def tuned_hosts(_testbed_is_possible, tmp_path_factory, tuned_folder, command_line):
    """Two equal hosts and one of a single core, on which every trial fails: tuned once."""
    folder = tmp_path_factory.mktemp("hosts")
    command = command_line(folder)
    with Testbed(3, quotas=(None, None, 1.0)) as bed:
        know_hosts(command, tuned_folder, [*BOTH, "node3"])
        ended = tune(command.run, command, bed, "FailsOnNode3", *SHORT)
        left_over = bed.left_over()
    assert ended.code == 0, ended.err
    return command, ended, left_over


def test_one_of_equal_hosts_searches_and_the_other_confirms(tuned_hosts):
    command, _, _ = tuned_hosts
    searched, confirmed = (roles(command, node) for node in BOTH)
    assert searched[0] in ("defaults", "look")
    assert SEARCHED & set(searched[1:])
    assert confirmed[0] == "defaults"
    assert "final" in confirmed
    assert not SEARCHED & set(confirmed)


def test_each_host_has_a_plan_with_evidence_of_its_own(tuned_hosts):
    command, ended, _ = tuned_hosts
    stored = {plan["node"]: plan for plan in command.data("plans", "list")}
    assert set(stored) == {"node1", "node2"}
    nodes = {node["host"]: node for node in ended.document["data"]["nodes"]}
    for name, plan in stored.items():
        assert nodes[name]["plan"]["id"] == plan["id"]
        assert nodes[name]["error"] is None
    first, second = (stored[name] for name in ("node1", "node2"))
    assert first["throughput_samples_per_s"] != second["throughput_samples_per_s"]


def test_host_that_fails_is_reported_and_the_others_are_kept(tuned_hosts):
    _, ended, _ = tuned_hosts
    failed = ended.document["data"]["nodes"][2]
    assert (failed["host"], failed["error"]["code"]) == ("node3", 2)  # before any trial
    assert "this host cannot count" in failed["error"]["message"]
    assert any(warning.startswith("node3: ") for warning in ended.document["warnings"])


def test_every_trial_is_a_line_with_its_host(tuned_hosts):
    _, ended, _ = tuned_hosts
    lines = [line.split()[:2] for line in ended.err.splitlines()]
    for host in ("node1", "node2"):
        assert [host, "1"] in lines
    assert "\x1b" not in ended.err


def test_network_is_measured_with_the_models_gradients_and_stored(tuned_hosts):
    command, ended, _ = tuned_hosts
    network = ended.document["data"]["network"]
    pairs = [(link["first"], link["second"]) for link in network["links"]]
    assert pairs == [("node1", "node2"), ("node1", "node3"), ("node2", "node3")]
    assert [one["message_bytes"] for one in network["all_reduces"]] == [88]
    with closing(Store.open(str(command.folder / "planner.db"))) as store:
        prints = {plan.node: plan.fingerprint for plan in store.plans.find()}
        assert len(store.machines.latest_links(prints).links) == 3


def test_nothing_is_left_running(tuned_hosts):
    command, _, left_over = tuned_hosts
    assert left_over == set()
    assert command.processes() == {}


def test_search_goes_on_without_a_host_that_is_lost(ddlplan, testbed, tuned_folder):
    bed = testbed(2)
    know_hosts(ddlplan, tuned_folder, BOTH)
    process = tune(ddlplan.start, ddlplan, bed, "Steady", "--budget", "40s", "--trials", 2)
    wait_for_plans(ddlplan, process)
    bed.cut(bed.hosts[1])
    ended = ddlplan.end(process)
    assert ended.code == 0, ended.err
    kept, lost = ended.document["data"]["nodes"]
    assert kept["error"] is None
    assert kept["trials"]["ok"] >= 2
    assert roles(ddlplan, "node1").count("defaults") >= 1
    assert lost["error"]["message"] == "lost: it does not answer any more"
    assert lost["plan"]["node"] == "node2"  # the one that is known: its baseline
    ddlplan.wait_until(lambda: not bed.hosts[0].pids(), "processes are left on node1")


def test_interrupt_keeps_what_is_known_and_leaves_nothing_running(ddlplan, testbed, tuned_folder):
    bed = testbed(2)
    know_hosts(ddlplan, tuned_folder, BOTH)
    process = tune(ddlplan.start, ddlplan, bed, "Steady", "--budget", "3m")
    wait_for_plans(ddlplan, process)
    process.send_signal(signal.SIGINT)
    ended = ddlplan.end(process)
    assert ended.code == 130
    assert ended.document["data"]["interrupted"]
    nodes = ended.document["data"]["nodes"]
    assert [(node["host"], node["error"]) for node in nodes] == [("node1", None), ("node2", None)]
    assert [node["plan"]["node"] for node in nodes] == ["node1", "node2"]
    assert bed.left_over() == set()


def test_host_that_cannot_be_reached_ends_it_before_anything_is_started(ddlplan, testbed):
    bed = testbed(2)
    bed.hosts[1].stop_sshd()
    assert "node2" in tune(ddlplan.run, ddlplan, bed, "Steady").refusal(4)
    assert ddlplan.listing() == ["hosts"]
    assert bed.left_over() == set()
