"""`ddlplan launch --hosts` when something dies, hangs or is cut off: who is named, what is left."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.store import Store
from tests.planner.cluster.alexnet_nodes import network


class Job:
    """A training on two hosts, started from this machine, which is none of them."""

    def __init__(self, command, bed, case) -> None:
        self._command = command
        self.bed = bed
        self._case = case
        self.folder: Path = command.folder
        self._hosts = bed.options(self.folder)
        with Store.open(str(self.folder / "planner.db")) as store:
            fast = network(2, 1e12, name="node", latency_s=1e-6)
            store.machines.save_links(fast.measured)

    def start(self, *arguments, epochs: int = 10**6):
        words = ["--use-case", self._case, *self._hosts, "--all-hosts", "--global-batch", "8"]
        self.process = self._command.start("launch", *words, "--epochs", epochs, *arguments)
        self.wait_for("runs/1/metrics.jsonl")

    def wait_for(self, pattern: str) -> None:
        def is_there() -> bool:
            return any(self.folder.glob(pattern))

        self._command.wait_until(lambda: is_there() or self.process.poll() is not None, pattern)
        assert is_there(), self.end().err

    def end(self):
        return self._command.end(self.process)

    def error(self) -> str:
        """Give the one line that a training ends with which has failed."""
        return self.end().refusal(1)

    def logins(self, host) -> list[int]:
        """Give the processes of sshd that hold a host's logins."""
        lines = host.command_lines().items()
        return [pid for pid, line in lines if line[0].startswith("sshd")]

    def mpirun(self) -> int:
        (found,) = (
            pid
            for pid, line in self._command.processes("prterun").items()
            if "prterun" in line.split()[0]
        )
        return found


@pytest.fixture
def job(tuned, shared_testbed, cases) -> Iterator[Job]:
    yield Job(tuned, shared_testbed, f"{cases}:Steady")
    assert shared_testbed.left_over() == set()


def test_worker_that_is_killed_is_named_with_its_host(job):
    job.start()
    host = job.bed.hosts[1]
    os.kill(host.workers()[0], signal.SIGKILL)
    assert f"on {host.name}: killed by signal 9 (SIGKILL): see " in job.error()


@pytest.mark.parametrize("number", [0, 1])
def test_rank_that_is_killed_is_named_and_not_the_one_that_misses_it(job, number):
    """The story: Open MPI ended the other rank, and mpirun said only that this one had failed."""
    job.start()
    host = job.bed.hosts[number]
    os.kill(host.find("launch.rank")[0], signal.SIGKILL)
    assert job.error() == f"error: {host.name}: rank {number} was killed by signal 9 (SIGKILL)"


def test_first_host_that_is_cut_off_is_named(job):
    """As another one is, before the training goes on without it: see below."""
    job.start()
    job.bed.cut(job.bed.hosts[0])
    assert job.error().startswith("error: node1: does not answer ")


def test_mpirun_that_is_killed_is_named(job):
    job.start()
    os.kill(job.mpirun(), signal.SIGKILL)
    said = "mpirun was killed by signal 9 (SIGKILL) before the training was done"
    assert said in job.error()


def test_rank_of_the_first_host_that_stands_still_is_named_and_not_mpirun(job):
    job.start()
    os.kill(job.bed.hosts[0].find("launch.rank")[0], signal.SIGSTOP)
    assert job.error().startswith("error: node1: its rank does not answer, ")


def test_rank_that_stands_still_is_missed_though_its_connections_are_whole(job):
    job.start()
    host = job.bed.hosts[1]
    os.kill(host.find("launch.rank")[0], signal.SIGSTOP)
    assert job.error() == "error: node2: does not answer node1 any more"


def test_worker_that_hangs_is_named_and_not_the_node_that_waits_for_it(job):
    job.start("--hang-timeout", "5s")
    host = job.bed.hosts[1]
    os.kill(host.workers()[0], signal.SIGSTOP)
    error = job.error()
    assert "on node2: hangs, " in error
    assert "it is stopped, as by SIGSTOP" in error


def test_training_goes_on_after_accidents_with_the_hosts_that_still_answer(job):
    """The story: where a login broke, mpirun ended with 255 and no word."""
    keep = ("--checkpoint", "kept", "--checkpoint-every", "1s", "--max-restarts", "2")
    job.start(*keep)
    job.wait_for("kept/step-*/manifest.json")
    for login in job.logins(job.bed.hosts[1]):
        os.kill(login, signal.SIGKILL)
    job.wait_for("runs/2/metrics.jsonl")
    assert (job.folder / "runs" / "2" / "node2-worker0.log").exists()

    job.bed.cut(job.bed.hosts[1])
    job.wait_for("runs/3/metrics.jsonl")
    job.process.send_signal(signal.SIGINT)
    ended = job.end()
    assert ended.code == 130
    going_on = "going on from the last checkpoint, {} of 2 restarts left"
    assert re.search(f"as where a login to a host breaks.*{going_on.format(2)}", ended.err)
    assert re.search(f"node2: does not answer .*{going_on.format(1)}", ended.err)
    assert (job.folder / "runs" / "3" / "node1-worker0.log").exists()
    assert not (job.folder / "runs" / "3" / "node2-worker0.log").exists()
    job.bed.mend(job.bed.hosts[1])
