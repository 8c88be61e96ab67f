"""What doctor finds: every host in one table, also those that fail."""

from __future__ import annotations

import os
import platform
import signal
import sys
from dataclasses import replace

import pytest

from launch.hosts.findings import FindingFactory
from planner.commands.doctor import _hardware
from planner.report.hosts import HOST_COLUMNS, host_rows
from planner.report.table import Terminal, render_table
from probes.hardware import Gpu
from probes.node import probe


@pytest.fixture
def doctor(ddlplan, testbed):
    """Bring hosts up, and give them with what runs doctor on some of them."""

    def bring_up(num_hosts, **names):
        bed = testbed(num_hosts, **names)
        options = bed.options(ddlplan.folder)

        def run(*arguments, begin=ddlplan.run):
            return begin("doctor", *options, *arguments)

        return bed, run

    return bring_up


def states(ended):
    """Give the state of each host, by the table."""
    found = {}
    for line in ended.out.splitlines()[1:]:
        name, rest = line.split("  ", 1)
        found[name] = rest.split()[0]
    return found


def of(document, host, check):
    return next(f for f in document["data"] if (f["host"], f["check"]) == (host, check))


@pytest.mark.parametrize("folder", [f"/{'x' * 300}", "~no_such_user/cache"])
def test_cache_at_a_place_that_cannot_be_is_a_fault_of_the_machine(ddlplan, folder):
    """The story: it was a bug of ddlplan, as was one in the folder of another user."""
    ended = ddlplan.run("doctor", "--json", DDLPLAN_CACHE=folder)
    assert (ended.code, ended.document["error"]["kind"]) == (4, "host")
    found = of(ended.document, platform.node(), "cache")
    assert (found["state"], "set DDLPLAN_CACHE" in found["finding"]) == ("fail", True)


def test_gpus_of_different_kinds_are_used(monkeypatch):
    """The story: "none, the CPU is used", as a quick probe does not know CUDA's order of them."""
    gpus = [
        Gpu(nvml_index=number, cuda_index=number, name=name, uuid=f"GPU-{number}")
        for number, name in enumerate(("A100", "T4"))
    ]
    node = replace(probe(quick=True), gpus=tuple(gpus), gpu_reason=None)
    monkeypatch.setattr("planner.commands.doctor.probe_for_plans", lambda: node)
    (found,) = (one for one in _hardware(FindingFactory("vm")) if one.check == "GPUs")
    assert (found.state, found.text) == ("ok", "2")


def test_good_hosts_one_in_capitals_are_good_and_mpi_joins_them(doctor):
    bed, run = doctor(2, names=["GPU1", "node2"])
    ended = run("--use-case", "simplebig", "--json")
    assert ended.code == 0, ended.err
    assert "fail" not in {finding["state"] for finding in ended.document["data"]}
    for number, host in enumerate(bed.hosts):
        said = of(ended.document, host.name, "MPI ranks")["finding"]
        assert said == f"rank {number} of 2 over {bed.network}"
        assert of(ended.document, host.name, "network")["finding"].startswith(host.address)
    assert bed.left_over() == set()


def test_every_host_is_in_the_table_also_those_that_do_not_answer(doctor, ddlplan):
    bed, run = doctor(4)
    _, closed, cut, hung = bed.hosts
    closed.stop_sshd()
    bed.cut(cut)
    os.kill(hung._daemon.pid, signal.SIGSTOP)
    as_json = run("--json", begin=ddlplan.start)  # at once: most of the time both wait for hosts
    ended = run()
    assert ended.code == 4
    failed = dict.fromkeys(("node2", "node3", "node4"), "fail")
    assert ({"node1": "ok"} | failed).items() <= states(ended).items()
    assert ended.errors[0].startswith("error: host node2: ssh: ")
    assert "refused" in ended.errors[0]
    assert "and 2 more" in ended.errors[0]
    assert "connect to host" in next(line for line in ended.out.splitlines() if "node3" in line)
    assert "\x1b" not in ended.out + ended.err
    document = ddlplan.end(as_json).document
    assert document["error"]["code"] == 4
    assert of(document, "node3", "ssh")["state"] == "fail"
    assert of(document, "node1", "MPI ranks")["finding"] == "rank 0 of 1"
    assert bed.left_over() == set()


def test_host_without_this_python_and_a_place_where_no_job_can_leave_its_files_are_told(
    doctor, ddlplan
):
    """Every host has the same files here, but for one that hides this environment.

    The story: where the files had no place, the launch ended in the middle of mpirun's own words
    about a rank.
    """
    bed, run = doctor(3)
    _, bare, full = bed.hosts
    hidden = {bare: ["none", sys.prefix], full: ["-o", "ro", "none", str(ddlplan.folder)]}
    for host, words in hidden.items():
        mounted = host.run(["mount", "-t", "tmpfs", *words])
        assert mounted.returncode == 0, mounted.stderr
    ended = run("--json")
    assert ended.code == 4
    found = of(ended.document, "node2", "path")
    assert found["state"] == "fail"
    assert sys.executable in found["finding"]
    for check in ("path", "folder"):
        assert of(ended.document, "node1", check)["state"] == "ok"
    found = of(ended.document, "node3", "folder")
    assert found["state"] == "fail"
    assert f"{ddlplan.folder / 'runs'}: {ddlplan.folder} is read-only" in found["finding"]


def test_root_is_told_that_mpi_was_not_tried_and_a_key_that_is_not_known_is_not_accepted(
    doctor, ddlplan
):
    bed, run = doctor(1)
    ended = ddlplan.run("doctor", "--hosts", "hosts", "--ssh-config", bed.ssh_config)
    assert ended.code == 0, ended.err
    assert "--allow-run-as-root" in ended.out
    known = bed.folder / "known_hosts"
    known.write_text("")
    ended = run("--json")
    assert ended.code == 4
    found = of(ended.document, "node1", "ssh")["finding"]
    assert "Host key verification failed" in found
    assert "log in once" in found
    assert known.read_text() == ""


def test_this_machine_may_be_one_of_the_hosts(doctor, ddlplan):
    bed, _ = doctor(1)
    (ddlplan.folder / "hosts").write_text(f"node1\n{bed.address}\n")
    words = ("--hosts", "hosts", "--ssh-config", bed.ssh_config, "--allow-run-as-root", "--json")
    ended = ddlplan.run("doctor", *words)
    assert ended.code == 0, ended.err
    assert of(ended.document, bed.address, "MPI ranks")["finding"].startswith("rank 0 of 2")
    assert of(ended.document, bed.address, "database")["state"] == "ok"


def test_findings_of_this_machine_are_in_the_document_of_a_failure_too(ddlplan):
    (ddlplan.folder / "planner.db").write_text("no database")
    ended = ddlplan.run("doctor", "--json")
    assert ended.refusal(4)
    assert "database" in {f["check"] for f in ended.document["data"] if f["state"] == "fail"}
    assert set(ended.document) == {"schema_version", "command", "warnings", "data", "error"}


def test_hosts_fit_on_a_narrow_terminal_with_remarks_below():
    findings = [
        FindingFactory("gpu-node-01.cluster.example.org").ok("ssh", "answered"),
        FindingFactory("gpu-node-02.cluster.example.org").fail(
            "ssh", "refused: " + "see to it " * 20
        ),
    ]
    text = render_table(host_rows(findings, {}, {}), HOST_COLUMNS, Terminal(width=80))
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "    ssh: refused: see to it" in text
    assert " ".join(text.split()).count("see to it") == 20


def test_hosts_that_are_networks_of_their_own_meet_by_their_routes(doctor):
    """As in clouds that give a /32. Open MPI took the loopback when it was told such a network."""
    bed, run = doctor(2)
    for host in bed.hosts:
        changes = f"""
        ip address flush dev eth0
        ip address add {host.address}/32 dev eth0
        ip route add {bed.network} dev eth0 src {host.address}
        """
        host.run(["sh", "-e", "-c", changes], check=True)
    ended = run("--json")
    assert ended.code == 0, ended.err
    assert "/31" in of(ended.document, "node1", "MPI ranks")["finding"]
    assert "router" in next(
        f["finding"]
        for f in ended.document["data"]
        if (f["check"], f["state"]) == ("network", "note")
    )


def test_interrupt_ends_the_logins_too(doctor, ddlplan):
    bed, run = doctor(1)
    os.kill(bed.hosts[0]._daemon.pid, signal.SIGSTOP)
    running = run(begin=ddlplan.start)
    ddlplan.wait_until(lambda: ddlplan.processes("ssh -F"), "ssh has started")
    running.send_signal(signal.SIGINT)
    assert ddlplan.end(running).code == 130
    ddlplan.wait_until_all_ended()
