"""`ddlplan probe --hosts`: what each host is, and what the network between them can do."""

from __future__ import annotations

import pytest

RATE_BYTES_PER_S = 100e6 / 8


@pytest.fixture
def probe(ddlplan, testbed):
    def run(bed, *arguments):
        file = bed.write_host_file(ddlplan.folder / "hosts")
        words = ("--ssh-config", bed.ssh_config, "--allow-run-as-root", *arguments)
        return ddlplan.run("probe", "--hosts", file, *words)

    return run


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
    assert 0.6 < link["bytes_per_s"] / RATE_BYTES_PER_S < 1.2  # the machine may be busy
    assert link["latency_s"] > 0
    assert ddlplan.query("SELECT count(*) FROM probes") == [(2,)]
    assert ddlplan.query("SELECT count(*) FROM links") == [(1,)]
    assert bed.left_over() == set()


def test_quick_probe_is_a_table_of_hosts_and_measures_nothing(testbed, probe):
    bed = testbed(2)
    ended = probe(bed, "--quick")
    assert ended.code == 0, ended.err
    assert [line.split()[0] for line in ended.out.splitlines()] == ["HOST", "node1", "node2"]
    assert max(map(len, ended.out.splitlines())) <= 80
