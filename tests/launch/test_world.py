"""The tiny job that shows whether MPI joins the hosts."""

from __future__ import annotations

import json
import os

import pytest
from host_answers import answer, host

from launch.mpi.settings import MpiSettings
from launch.mpi.world import MARK, find_world_fault

HOSTS = [host("node1"), host("node2")]
ROOT = MpiSettings(allow_root=True)


def fault(found, settings=ROOT):
    return find_world_fault(
        HOSTS,
        settings,
        {},
        host_names=["one", "two"],
        starts_here=False,
        ask=lambda _commands, **_options: [found],
    )


def called(*names):
    return answer(f"motd\n{json.dumps({MARK: names})}\n")


def test_one_rank_on_each_host_is_no_fault():
    assert fault(called("one", "two")) is None


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (called("one"), "1 of 2 ranks"),
        (answer("nothing\n"), "no ranks"),
        (called("two", "one"), "node1 got the rank of two"),
        (answer(code=1, err="-----\n\nA is\n broken.\n-----\n"), "exit code 1 (A is broken.)"),
        (answer(code=None, err="half"), "a firewall must let through"),
    ],
)
def test_fault_is_said_in_one_line(found, says):
    said = fault(found)
    assert says in said
    assert "\n" not in said


def test_mpirun_that_is_not_there_is_a_fault():
    assert "no such program" in fault(called(), MpiSettings(mpirun="/nowhere/mpirun"))


def test_this_machine_alone_is_a_world_of_one():
    names = [os.uname().nodename]
    found = find_world_fault(
        [host("localhost")], ROOT, os.environ, host_names=names, starts_here=True
    )
    assert found is None
