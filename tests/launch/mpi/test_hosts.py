"""A program runs on several hosts, and ends there."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.hosts.host_line import Host
from launch.hosts.parallel_commands import run_all
from launch.hosts.ssh import write_ssh_config
from launch.mpi.command import mpi_command
from launch.mpi.job import MpiJob
from launch.mpi.mpirun_log import find_lost_host
from launch.mpi.scratch_folder import with_files_in
from launch.mpi.settings import MpiSettings
from launch.reports import Report
from launch.system.temporary_folder import TemporaryFolder


@pytest.fixture(autouse=True)
def _programs(monkeypatch):
    """Let ranks find ``hello_rank``."""
    path = [str(Path(__file__).parents[3]), str(Path(__file__).parents[1] / "ranks")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))


def command_on(bed, *program, names=None, starts_here=False) -> list[str]:
    """Give the command that starts a program on all hosts, as a rank on each."""
    names = names or [host.name for host in bed.hosts]
    hosts = [Host(name=name, line=line) for line, name in enumerate(names, start=1)]
    config = bed.folder / "job_ssh_config"
    write_ssh_config(hosts, config, include=bed.ssh_config)
    settings = MpiSettings(ssh_config=config, networks=(bed.network,), allow_root=True)
    return mpi_command(hosts, program, settings, os.environ, starts_here=starts_here)


def job_on(bed, *program, names=None, starts_here=False) -> MpiJob:
    """Start a program on all hosts, from the first one or else from this machine."""
    command = command_on(bed, *program, names=names, starts_here=starts_here)
    if starts_here:
        command = bed.hosts[0].command(command)
    log = bed.folder / "mpirun.log"
    log.unlink(missing_ok=True)
    return MpiJob(command, log)


def reports_of(job) -> Iterator[Report]:
    while not job.is_over:
        if (report := job.next_report(1.0)) is not None:
            yield report


def said_by(job) -> list[str]:
    return sorted(report.message for report in reports_of(job))


def wait_for(job, *messages: str) -> None:
    """Read until every message has come."""
    missing = set(messages)
    reports = reports_of(job)
    while missing:
        missing.discard(next(reports).message)


BOTH = ("rank 0 of node1 node2", "rank 1 of node1 node2")


def test_each_host_runs_one_rank_in_the_order_given_by_addresses_with_colons_too(shared_testbed):
    bed = shared_testbed
    names = [host.address_v6 for host in reversed(bed.hosts)]
    with job_on(bed, "hello_rank", names=names) as job:
        assert said_by(job) == ["rank 0 of node2 node1", "rank 1 of node2 node1"]
        assert job.wait() == 0
    assert bed.left_over() == set()


def test_bridge_that_every_host_has_at_the_same_address_is_left_alone(testbed):
    """The story: each rank sent its messages to its own docker0, and none ever arrived."""
    bed = testbed(2)
    for host in bed.hosts:
        host.run(["ip", "link", "add", "docker0", "type", "bridge"])
        host.run(["ip", "address", "add", "172.17.0.1/16", "dev", "docker0"])
        host.run(["ip", "link", "set", "docker0", "up"])
    with job_on(bed, "hello_rank", starts_here=True) as job:
        assert said_by(job) == list(BOTH)
        assert job.wait() == 0
    assert bed.left_over() == set()


def test_signal_reaches_every_rank_even_if_it_comes_too_early(shared_testbed):
    bed = shared_testbed
    with job_on(bed, "hello_rank", "wait") as job:
        job.signal(signal.SIGUSR1)
        wait_for(job, *BOTH, "rank 0 got 10", "rank 1 got 10")
        job.signal(signal.SIGUSR2)
        wait_for(job, "rank 0 got 12", "rank 1 got 12")
    assert bed.left_over() == set()


def test_nothing_is_left_on_any_host_of_ranks_that_were_not_waited_for(shared_testbed):
    bed = shared_testbed
    with TemporaryFolder() as scratch:
        command = with_files_in(scratch, command_on(bed, "hello_rank", "wait"), os.environ)
        (answer,) = run_all([command], limit_s=8)
    assert answer.code is None
    assert bed.left_over() == set()


def test_job_that_is_stopped_while_a_host_is_cut_off_leaves_no_process_either(shared_testbed):
    """The story: mpirun waited for the host's answer, and when it was killed its login stayed."""
    bed = shared_testbed
    with job_on(bed, "hello_rank", "watch", starts_here=True) as job:
        wait_for(job, *(f"rank {rank} watches all but ()" for rank in (0, 1)))
        bed.cut(bed.hosts[1])
    assert bed.left_over() == set()


def test_rank_that_fails_ends_the_job_on_every_host(shared_testbed):
    bed = shared_testbed
    with job_on(bed, "hello_rank", "fail") as job:
        wait_for(job, *BOTH)
        assert job.wait() != 0
        assert find_lost_host(job.read_errors()) is None
    assert bed.left_over() == set()


def test_host_that_is_cut_off_ends_the_job_and_is_named(shared_testbed):
    """The story: mpirun ended with exit code 0, as if all had been well."""
    bed = shared_testbed
    with job_on(bed, "hello_rank", "wait", starts_here=True) as job:
        wait_for(job, *BOTH)
        bed.cut(bed.hosts[1])
        assert job.wait() == 1
        assert find_lost_host(job.read_errors()) == "node2"
    assert bed.left_over(patience_s=30) == set()


def test_job_whose_starter_is_killed_leaves_no_process_on_any_host(shared_testbed):
    bed = shared_testbed
    with job_on(bed, "hello_rank", "wait") as job:
        wait_for(job, *BOTH)
        job._process.kill()
    assert bed.left_over() == set()


def test_mpirun_that_is_stopped_is_seen_and_leaves_no_process_on_any_host(shared_testbed):
    """How a training says so, tests/planner/jobs/test_training.py has."""
    bed = shared_testbed
    with job_on(bed, "hello_rank", "wait") as job:
        wait_for(job, *BOTH)
        mpirun = job._process.pid
        assert b"prterun" in Path(f"/proc/{mpirun}/cmdline").read_bytes()
        os.kill(mpirun, signal.SIGSTOP)
        while not job.is_stopped:  # it has to be scheduled before it stands still
            time.sleep(0.01)
    assert bed.left_over() == set()


def test_host_that_lets_nobody_in_ends_the_job_before_any_rank_runs(testbed):
    bed = testbed(2)
    bed.hosts[1].stop_sshd()
    with job_on(bed, "hello_rank", starts_here=True) as job:
        assert said_by(job) == []
        assert job.wait() != 0
    assert bed.left_over() == set()


def test_host_that_is_cut_off_ends_its_own_ranks_though_they_still_talk(shared_testbed):
    """The story: what a rank says keeps the kernel busy sending it, for a quarter of an hour in
    which mpirun's daemon on the lost host sees nothing wrong."""
    bed = shared_testbed
    with job_on(bed, "hello_rank", "watch", starts_here=True) as job:
        wait_for(job, *(f"rank {rank} watches all but ()" for rank in (0, 1)))
        bed.cut(bed.hosts[1])
        assert job.wait() != 0
        assert bed.left_over() == set()
