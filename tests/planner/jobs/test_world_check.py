"""The tiny job that shows whether MPI joins the hosts."""

from __future__ import annotations

import shlex
import socket

import pytest
from host_answers import facts_of, host
from own_mpirun import write_mpirun

from launch.errors import HostUnreachableError
from launch.hosts.findings import CheckedHosts
from launch.reports import RanksJoined
from planner.cancellation import Cancellation
from planner.jobs.hosts import HostAccess
from planner.jobs.world_check import check_world, find_world_fault
from planner.trials.reports import ignore

OPEN_MPI = "mpirun (Open MPI) 5.0.3"


def checked(*hosts, this_machine=None):
    """What the checks of good hosts show, by the names that they have for themselves."""
    facts = {name: facts_of(1, host_name=own) for name, own in hosts}
    return CheckedHosts(
        hosts=tuple(host(name) for name in facts),
        findings=(),
        facts=facts,
        here=facts_of(1),
        this_machine=this_machine,
    )


@pytest.fixture
def fault(tmp_path):
    """Gives what is found wrong where mpirun does what a script says."""

    def find(script, **limits):
        own = write_mpirun(tmp_path, OPEN_MPI, script)
        access = HostAccess(mpirun=own, allow_root=True)
        hosts = checked(("node1", "one"), ("node2", "two"))
        return find_world_fault(hosts, access, ignore, Cancellation(), **limits)

    return find


def called(*names):
    line = RanksJoined(names=names).encode().decode().strip()
    return f"echo motd\necho {shlex.quote(line)}\n"


def test_one_rank_on_each_host_is_no_fault(fault):
    assert fault(called("one", "two")) is None


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (called("one"), "1 of 2 ranks"),
        ("echo nothing", "no ranks"),
        (called("two", "one"), "node1 got the rank of two"),
        (r"printf -- '-----\n\nA is\n broken.\n-----\n' >&2; exit 1", "exit code 1 (A is broken.)"),
    ],
)
def test_fault_is_said_in_one_line(fault, script, says):
    said = fault(script)
    assert says in said
    assert "\n" not in said


def test_only_hosts_that_take_part_are_started_and_their_fault_is_an_error(tmp_path):
    said = tmp_path / "said"
    script = f"echo \"$*\" > {shlex.quote(str(said))}; echo 'no way to node1' >&2; exit 7"
    access = HostAccess(mpirun=write_mpirun(tmp_path, OPEN_MPI, script))
    found = checked(("node1", "one"), ("node2", "two"), ("node3", "three"))
    error = r"^MPI ranks: mpirun ended with exit code 7 \(no way to node1\)"
    with pytest.raises(HostUnreachableError, match=error):
        check_world(found, access, ignore, Cancellation(), ["node3", "node1"])
    assert "--host node3:1,node1:1 " in said.read_text()


def test_ranks_that_do_not_come_together_are_a_matter_of_the_firewall(fault):
    said = fault("echo half >&2; exec sleep 100", limit_s=2)
    assert said.startswith("no answer within 2 s (half): ")
    assert said.endswith("a firewall must let through")


def test_mpirun_that_is_not_there_is_a_fault():
    hosts = checked(("node1", "one"), ("node2", "two"))
    access = HostAccess(mpirun="/nowhere/mpirun")
    assert "no such program" in find_world_fault(hosts, access, ignore, Cancellation())


def test_this_machine_alone_is_a_world_of_one():
    alone = checked(("localhost", socket.gethostname()), this_machine="localhost")
    assert find_world_fault(alone, HostAccess(allow_root=True), ignore, Cancellation()) is None
