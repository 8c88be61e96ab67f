"""`ddlplan launch --hosts` on several hosts: shares, a verdict, one job, and what came of it."""

from __future__ import annotations

import json

import pytest

from planner.store import Store
from tests.planner.cluster.alexnet_nodes import network


@pytest.fixture
def hosts(tuned, shared_testbed):
    """Two hosts with this machine's hardware, and so with its plan, on a network of some speed."""
    options = shared_testbed.options(tuned.folder)

    def measured(bytes_per_s):
        with Store.open(str(tuned.folder / "planner.db")) as store:
            (plan,) = store.plans.find()
            known = {"name": "node", "fingerprints": (plan.fingerprint,) * 2, "latency_s": 1e-6}
            store.machines.save_links(network(2, bytes_per_s, **known).measured)

    def launch(case, *arguments):
        return tuned.run("launch", "--use-case", case, *options, *arguments)

    return tuned, measured, launch


def test_hosts_that_are_faster_together_train_together_and_what_each_used_is_stored(hosts, cases):
    tuned, measured, launch = hosts
    case = f"{cases}:Steady"
    measured(1.0)
    slow = launch(case, "--dry-run")
    assert slow.code == 0, slow.err
    assert "node1 alone is fastest: " in slow.out
    assert "leave node2 out: it would slow the job by " in slow.out

    measured(1e12)
    dry = launch(case, "--dry-run", "--global-batch", "64", "--all-hosts", "--json")
    assert dry.code == 0, dry.err
    assert not (tuned.folder / "runs").exists()
    planned = dry.document["data"]
    assert [node["host"] for node in planned["nodes"]] == ["node1", "node2"]
    assert sum(node["plan"]["node_batch"] for node in planned["nodes"]) == 64
    ended = launch(case, "--global-batch", "8", "--all-hosts", "--epochs", "5", "--json")
    assert ended.code == 0, ended.err
    data = ended.document["data"]
    assert data["verdict"]["chosen"]["node_batches"] == [4, 4]
    assert [plan["id"] for plan in data["plans"]] == [1, 1]
    assert data["expected_throughput_samples_per_s"] > 0
    assert data["measured_throughput_samples_per_s"] > 0
    assert data["network_measured_at"] == "2026-11-20T12:00:00Z"
    job = json.loads((tuned.folder / "runs" / "1" / "job.json").read_text())
    assert [node["plan"]["node_batch"] for node in job["nodes"]] == [4, 4]
    assert all(node["step_time"]["per_sample_s"] > 0 for node in job["nodes"])
    assert "node1, node2 train together: " in ended.err

    (record,) = tuned.data("runs", "list")
    assert record["state"] == "done"
    assert [host["host"] for host in record["hosts"]] == ["node1", "node2"]
    assert [host["plan"]["node_batch"] for host in record["hosts"]] == [4, 4]
    with Store.open(str(tuned.folder / "planner.db")) as store:
        usage = store.trainings.usage(1)
    assert list(usage) == ["node1", "node2"]
    for use in usage.values():
        assert len(use.time_s) >= 2
        assert sum(use.sent_bytes_per_s.mean) > 0
        assert max(use.processes.maximum) >= 2
        assert any(wait is not None for wait in use.sync_wait.mean)
    assert usage["node1"].loss is not None
    assert usage["node2"].loss is None
    shown = tuned.run("runs", "show", 1)
    assert "SYNC WAIT" in shown.out


def test_hosts_that_were_never_measured_together_are_measured_before_any_is_chosen(hosts, cases):
    """The story: a host was added to the file, and the job became slower than without it."""
    tuned, _, launch = hosts
    dry = launch(f"{cases}:Steady", "--dry-run")
    assert "the network takes of it is not known before ddlplan probe" in dry.out
    ended = launch(f"{cases}:Steady", "--global-batch", "8", "--json")
    assert ended.code == 0, ended.err
    assert "measuring the network between 2 hosts, as it was not measured with all" in ended.err
    data = ended.document["data"]
    assert data["verdict"]["knows_network"]
    assert {len(prediction["hosts"]) for prediction in data["verdict"]["subsets"]} == {1, 2}
    with Store.open(str(tuned.folder / "planner.db")) as store:
        (plan,) = store.plans.find()
        links = store.machines.latest_links(dict.fromkeys(("node1", "node2"), plan.fingerprint))
    assert [one.message_bytes for one in links.sums] == [plan.gradient_bytes]
    again = launch(f"{cases}:Steady", "--dry-run")
    assert again.code == 0, again.err
    assert "train together: " in again.out or "alone is fastest: " in again.out
