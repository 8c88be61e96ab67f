"""Peers on two hosts, each by its own launcher: they train, and end with all that they began."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launch.hosts.host_line import Host
from launch.hosts.ssh import write_ssh_config
from launch.mpi.settings import MpiSettings
from launch.plan import Plan
from launch.reports import Reporter
from launch.use_cases import resolve
from launch.workload import Workload
from planner.peer_runs.launcher import PeerLauncher, ReachableHost
from planner.peer_runs.request import CompareRequest, Setting
from planner.peer_runs.trainings import PeerTraining
from planner.peers import load_peer, peer_names

CASES = (f"{Path(__file__).parents[1] / 'steady_cases.py'}:Steady", "mnist_cnn")
"""Not every peer has a model of the first."""

NODE_BATCH = 8


def make_launcher(peer, case, addresses, ssh_config=None, *, starts_here=False, cores=2):
    """The launcher of the command, for hosts with so many cores each."""
    return PeerLauncher(
        CompareRequest(workload=Workload(use_case=case), peers=(peer.name,)),
        Plan(strategy="sequential", node_batch=NODE_BATCH),
        NODE_BATCH,
        [
            ReachableHost(host=Host(name=name, line=line), address=address, cores=cores)
            for line, (name, address) in enumerate(addresses.items(), start=1)
        ],
        MpiSettings(ssh_config=ssh_config, allow_root=True),
        starts_here=starts_here,
        on_poll=lambda: None,
    )


def is_shown_by_another(peer) -> bool:
    others = map(load_peer, peer_names())
    return peer.is_one_process and any(
        other.script == peer.script and not other.is_one_process for other in others
    )


def find_case(peer) -> str:
    """Find a use case that a peer can train; skip the test where it can none."""
    for case in CASES:
        launcher = make_launcher(peer, case, {"node1": "10.0.0.1", "node2": "10.0.0.2"})
        setup = launcher.make_setup(peer, Setting.DEFAULTS)
        if (obstacle := peer.find_obstacle(setup)) is None:
            if any("torch.distributed.run" in start.command for start in peer.starts(setup)):
                pytest.skip("torchrun starts it, as in the test of the command")
            if is_shown_by_another(peer):
                pytest.skip("another peer starts its script, with more processes on each host")
            return case
    pytest.skip(obstacle)


def open_ports(host) -> set[int]:
    """The TCP ports at which programs listen on a host, but for sshd's."""
    lines = host.run(["ss", "-ltnH"]).stdout.splitlines()
    return {int(line.split()[3].rpartition(":")[2]) for line in lines} - {22}


def test_machine_that_trains_and_starts_mpirun_has_one_supervisor():
    """Horovod's had two with one folder, and the second one failed: it could not be compared."""
    peer, addresses = load_peer("horovod"), {"node1": "10.0.0.1", "node2": "10.0.0.2"}
    launcher = make_launcher(peer, "simplebig", addresses, starts_here=True)
    setup = launcher.make_setup(peer, Setting.DEFAULTS)
    here, other = launcher.make_requests(peer, setup)
    assert here.host is None
    assert len(here.request.commands) == 1
    assert other.host is not None
    assert not other.request.commands


@pytest.mark.long
@pytest.mark.parametrize("name", peer_names())
def test_peer_trains_on_two_hosts_and_leaves_nothing_running(name, testbed):
    peer = load_peer(name)
    case = find_case(peer)
    with Path(os.devnull).open("wb") as nowhere:
        resolve(case).load().prepare(None, Reporter(nowhere.fileno()))
    bed = testbed(2)
    ssh_config = bed.folder / "job_ssh_config"
    addresses = {host.name: host.address for host in bed.hosts}
    hosts = [Host(name=name, line=line) for line, name in enumerate(addresses, start=1)]
    write_ssh_config(hosts, ssh_config, include=bed.ssh_config)
    launcher = make_launcher(peer, case, addresses, ssh_config)
    setup = launcher.make_setup(peer, Setting.DEFAULTS)
    with launcher.start(peer, setup) as processes:
        training = PeerTraining(processes, start_limit_s=200, step_limit_s=60)
        assert training.begun.processes == setup.world_size
        assert min(port for host in bed.hosts for port in open_ports(host)) >= 20_000, "a fixed one"
        assert {step.samples for step in training.make_steps(3)} == {2 * NODE_BATCH}
    assert bed.left_over() == set()


def test_many_processes_on_many_hosts_have_ports():
    """The story: 12800 processes asked for more ports than there are, which was called a bug."""
    addresses = {f"node{number}": f"10.0.0.{number}" for number in range(1, 101)}
    peer = load_peer("ddp")
    setup = make_launcher(peer, CASES[0], addresses, cores=128).make_setup(peer, Setting.DEFAULTS)
    assert (setup.world_size, len(setup.ports)) == (12_800, 128)
