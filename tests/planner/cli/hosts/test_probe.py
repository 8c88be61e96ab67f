"""`ddlplan probe --hosts`: what each host is, and what the network between them can do."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

RATE_BYTES_PER_S = 100e6 / 8


@pytest.fixture
def probe(ddlplan, testbed):
    def do(bed, *arguments, begin=ddlplan.run):
        return begin("probe", *bed.options(ddlplan.folder), *arguments)

    return do


def test_each_host_is_probed_and_stored_and_the_link_is_near_its_rate(ddlplan, testbed, probe):
    bed = testbed(2, rate="100mbit", quotas=(None, 0.5))
    ended = probe(bed, "--json")
    assert ended.code == 0, ended.err
    first, second = ended.document["data"]
    assert [first["node"], second["node"]] == ["node1", "node2"]
    assert second["cpu"]["usable_cores"] == 1
    assert first["speeds"] is not None
    (link,) = first["links"]
    assert link["to"] == "node2"
    assert link["latency_s"] > 0
    ours, theirs = first["all_reduces"], second["all_reduces"]
    assert [one["time_s"] for one in ours] == [one["time_s"] for one in theirs]
    assert all(one["cpu_s"] > 0 for one in (*ours, *theirs))
    assert len(ours) == 2  # of a small and of a large model
    assert (ddlplan.count("probes"), ddlplan.count("links")) == (2, 1)
    assert bed.left_over() == set()
    rates = [link["bytes_per_s"] / RATE_BYTES_PER_S]
    # Others may have had the cores: then it is too slow, or what the limit lets through at once
    # after a pause makes it too fast.
    while not 0.6 < rates[-1] < 1.2 and len(rates) < 3:
        again = probe(bed, "--json")
        assert again.code == 0, again.err
        rates.append(again.document["data"][0]["links"][0]["bytes_per_s"] / RATE_BYTES_PER_S)
    assert 0.6 < rates[-1] < 1.2, rates
    quick = probe(bed, "--quick")
    assert quick.code == 0, quick.err
    assert [line.split()[0] for line in quick.out.splitlines()] == ["HOST", "node1", "node2"]


def test_host_whose_mpi_is_broken_ends_it_before_anything_is_started(ddlplan, testbed, probe):
    bed = testbed(2)
    (library,) = Path(sys.prefix, "lib").glob("libmpi.so.*")
    hidden = bed.hosts[1].run(["mount", "--bind", "/dev/null", str(library)])
    assert hidden.returncode == 0, hidden.stderr
    assert probe(bed, "--quick", "--json").refusal(4).startswith("error: MPI ranks: ")
    assert ddlplan.listing() == ["hosts"]
    assert bed.left_over() == set()


def test_host_lost_while_the_network_is_measured_is_named_and_the_others_are_measured(
    ddlplan, testbed, probe
):
    bed = testbed(3, rate="20mbit")
    process = probe(bed, "--json", begin=ddlplan.start)
    ddlplan.wait_until(lambda: ddlplan.count("probes") == 3, "a probe of each host")
    (rank,) = bed.hosts[2].find("planner.cluster_tuning.rank")
    os.kill(rank, signal.SIGKILL)
    ended = ddlplan.end(process)
    assert ended.code == 0, ended.err
    nodes = ended.document["data"]
    assert [len(node["links"]) for node in nodes] == [1, 1, 0]
    assert all(node["error"] is None for node in nodes)
    killed = "its MPI rank was killed by signal 9 (SIGKILL)"
    said = [warning for warning in ended.document["warnings"] if "lost" in warning]
    assert said == [f"node3: lost: {killed}: what it had found out is kept"]
    assert bed.left_over() == set()
