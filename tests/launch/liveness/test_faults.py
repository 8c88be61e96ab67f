"""What notices that a node hangs, what a log keeps, and which of several failures came first."""

from __future__ import annotations

import socket
from dataclasses import replace

import numpy as np
import pytest

from launch.hosts.host_line import Host
from launch.liveness.hang import StepWatchdog
from launch.liveness.inactivity import InactivityTimer
from launch.mpi.mpirun_log import DeadRank, find_dead_rank
from launch.reports import JobFailed, make_lost_host_failure, make_node_failure
from launch.workers.log import BoundedLog, find_user_frame, read_tail
from planner.jobs.failure import find_root_cause

HOSTS = [Host(name=f"node{number}", line=number) for number in (1, 2, 3)]
NOTICED = """
prterun noticed that process rank 1 with PID 29998 on node node2 exited on
signal 9 (Killed).
"""
LOST = """PRTE has lost communication with a remote daemon.

  HNP daemon   : [prterun-vm-1058@0,0] on node vm
  Remote daemon: [prterun-vm-1058@0,1] on node node3
"""
WORKER = replace(make_node_failure("node1", "killed by signal 9 (SIGKILL)"), workers=2, signal=9)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Steps:
    """What answers workers, as far as it is looked at."""

    def __init__(self) -> None:
        self.steps = 0
        self.replied_at = 0.0
        self.is_waiting = False


class Seconds:
    """Lets time pass for a node, second by second, and says when it hangs."""

    def __init__(self, limit_s: float | None = None) -> None:
        self.clock, self.steps, self.cpu_s, self.printed_bytes = Clock(), Steps(), 0.0, 0
        self.hang = StepWatchdog(limit_s, self.clock)

    def pass_by(self, seconds: int, *, cpu_s: float = 0.0) -> str | None:
        for _ in range(seconds):
            self.clock.now += 1
            self.cpu_s += cpu_s
            if found := self.hang.find_hang(self.steps, self.printed_bytes, lambda: self.cpu_s):
                return found
        return None


@pytest.mark.parametrize(("step_s", "limit_s"), [(0.1, 60), (10.0, 200)])
def test_node_hangs_after_twenty_steps_and_at_least_a_minute(step_s, limit_s):
    node = Seconds()
    node.hang.add_step(step_s)
    assert node.pass_by(limit_s) is None
    assert node.pass_by(1) == f"no step for {limit_s + 1} s, where steps took {step_s:.3g} s"


def test_node_that_waits_for_others_leaves_them_the_time_to_notice_their_own_hang():
    node = Seconds()
    node.hang.add_step(0.1)
    node.steps.is_waiting = True
    assert node.pass_by(120) is None
    assert "do large packets reach them" in (node.pass_by(1) or "")


def test_validation_may_take_any_time_but_not_idle():
    node = Seconds()
    node.hang.add_step(0.1)
    node.hang.pause_steps()
    assert node.pass_by(10_000, cpu_s=1.0) is None
    assert node.pass_by(10_000, cpu_s=0.002) is None  # as a slow download
    assert "idle for " in (node.pass_by(100) or "")


def test_workers_that_print_are_not_idle():
    node = Seconds()
    node.hang.pause_steps()
    for _ in range(10):
        assert node.pass_by(50) is None
        node.printed_bytes += 1
    assert "idle for " in (node.pass_by(100) or "")


def test_line_that_waits_is_the_innermost_of_the_users_own():
    stack = [
        "drawn",
        "Thread 0x1 (most recent call first):",
        '  File "/other.py", line 1 in run',
        "",
        "Current thread 0x2 (most recent call first):",
        f'  File "{socket.__file__}", line 706 in readinto',
        f'  File "{np.__file__}", line 5 in load',
        '  File "/home/me/case.py", line 7 in dataset',
        '  File "/home/me/base.py", line 3 in prepare',
    ]
    assert find_user_frame("\n".join(stack)) == 'File "/home/me/case.py", line 7 in dataset'
    assert (find_user_frame("\n".join(stack[:-2])) or "").endswith("in readinto")
    assert find_user_frame("nothing of the kind") is None


def test_time_in_which_nobody_looked_does_not_count():
    clock = Clock()
    inactivity = InactivityTimer(clock)
    clock.now = 3600
    assert inactivity.poll() == 2
    clock.now += 1
    assert inactivity.poll() == 3


def test_log_keeps_head_and_tail_within_its_limit(tmp_path):
    path = tmp_path / "log"
    log = BoundedLog(path, 4096)
    for number in range(5000):
        log.write(b"line %d\n" % number)
        assert path.stat().st_size <= 4096
    log.write(b"x" * 20_000 + b"\nthe end\n")
    log.close()
    content = path.read_text()
    assert len(content) <= 4096
    assert content.startswith("line 0\nline 1\n")
    assert content.endswith("\nthe end\n")
    assert content.count("bytes are left out here") == 1
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_tail(path, 1) == "the end"
    assert read_tail(tmp_path / "none", 1) == ""


@pytest.mark.parametrize(
    ("said", "log", "node", "message"),
    [
        ([make_lost_host_failure("node3", "gone"), WORKER], NOTICED, "node1", WORKER.message),
        (
            [make_lost_host_failure("node2", "gone")],
            NOTICED,
            "node2",
            "rank 1 was killed by signal 9 (SIGKILL)",
        ),
        ([make_lost_host_failure("node3", "gone")], LOST, "node3", "gone"),
        ([], LOST, "node3", "does not answer mpirun any more"),
        ([make_node_failure("node1", "broken", is_consequence=True)], "", "node1", "broken"),
    ],
)
def test_first_cause_is_told_and_not_what_followed(said, log, node, message):
    cause = find_root_cause(said, log, HOSTS)
    assert isinstance(cause, JobFailed)
    assert (cause.node, cause.message) == (node, message)


def test_no_cause_is_made_up():
    assert find_root_cause([], "all is well", HOSTS) is None


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (NOTICED, DeadRank(1, 9)),
        ("srun: error: node2: task 1: Killed\n", DeadRank(1, 9)),
        ("srun: error: node2: task 3: Segmentation fault (core dumped)\n", DeadRank(3, 11)),
        ("srun: error: node2: task 1: Exited with exit code 1\n", None),
    ],
)
def test_rank_that_died_is_found_in_what_the_launcher_says(log, expected):
    assert find_dead_rank(log) == expected
