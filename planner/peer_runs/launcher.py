"""Launcher of peers: what each is told, and its processes on this machine or on several hosts."""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from launch.hosts.host_line import Host
from launch.hosts.host_programs import HostProgram
from launch.mpi.mpirun import mpirun_command, needs_root_option
from launch.mpi.settings import MpiSettings
from launch.plan import Plan
from planner.peer_runs.processes import PeerProcesses, supervised
from planner.peer_runs.request import CompareRequest, Setting
from planner.peer_runs.supervisor import TOKEN_VARIABLE, SupervisorRequest
from planner.peers._base import Peer, PeerSetup, PeerStart

_THREADS = "OMP_NUM_THREADS"
_LOWEST_PORT, _NUM_PORTS = 20000, 10000
_PORTS = 2
"""That a peer needs on its first host, or one for each process of a host."""

_TOKEN_BYTES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachableHost:
    """A host with what peers have to know of it."""

    host: Host

    address: str
    """At which the others reach it."""

    cores: int
    """That can be used."""


class PeerLauncher:
    """Starts peers.

    Args:
        request: What is compared.
        plan: Of ours on the first host: peers may be set as it is.
        node_batch: Samples of a step on each host.
        hosts: On which they train.
        mpi: How mpirun reaches them, with the ssh configuration; none of that for this machine.
        starts_here: Whether the first host is this machine. No other one is.
        on_poll: As in `PeerProcesses`.
    """

    def __init__(
        self,
        request: CompareRequest,
        plan: Plan,
        node_batch: int,
        hosts: Sequence[ReachableHost],
        mpi: MpiSettings,
        *,
        starts_here: bool,
        on_poll: Callable[[], None],
    ) -> None:
        self._request = request
        self._plan = plan
        self._node_batch = node_batch
        self._hosts = tuple(hosts)
        self._mpi = mpi
        self._starts_here = starts_here
        self._is_local = starts_here and len(hosts) == 1
        self._on_poll = on_poll

    def make_setup(self, peer: Peer, setting: Setting) -> PeerSetup:
        """Give what a peer is told. The folder is new with each call."""
        plan, cores = self._plan, min(one.cores for one in self._hosts)
        usual = 1 if peer.is_one_process else cores
        processes, threads = usual, None
        if setting is Setting.OURS:
            processes = plan.processes if min(usual, plan.processes) > 1 else usual
            threads = max(1, plan.threads // processes)
        setup = PeerSetup(
            workload=self._request.workload,
            addresses=tuple(one.address for one in self._hosts),
            node_batch=self._node_batch,
            processes=processes,
            threads=threads,
            channels_last=setting is Setting.OURS and plan.memory_format == "channels_last",
            loader_workers=self._request.loader_workers,
            folder=make_folder_name(),
            ports=find_ports(max(_PORTS, processes), is_local=self._is_local),
            is_local=self._is_local,
        )
        return replace(setup, mpirun=self._mpirun(setup))

    def start(self, peer: Peer, setup: PeerSetup) -> PeerProcesses:
        """Start a peer.

        Raises:
            PeerFailedError: A host is lost.
        """
        return PeerProcesses(
            self.make_requests(peer, setup),
            ssh_config=self._mpi.ssh_config,
            on_poll=self._on_poll,
        )

    def make_requests(self, peer: Peer, setup: PeerSetup) -> list[HostProgram[SupervisorRequest]]:
        """Give one request for each machine: two supervisors of one would share its folder."""
        threads = {} if setup.threads is None else {_THREADS: str(setup.threads)}
        first_host = 0 if self._starts_here else None
        starts = [(first_host if one.host is None else one.host, one) for one in peer.starts(setup)]
        wanted: list[tuple[Host | None, str | None, list[PeerStart]]] = [
            (
                None if self._starts_here and number == 0 else one.host,
                one.address,
                [start for host, start in starts if host == number],
            )
            for number, one in enumerate(self._hosts)
        ]
        if here := [start for host, start in starts if host is None]:
            wanted.append((None, None, here))
        return [
            supervised(
                host,
                SupervisorRequest(
                    token=setup.folder.name,
                    folder=str(setup.folder),
                    address=address,
                    commands=tuple(
                        replace(start, environment={**threads, **start.environment})
                        for start in of_host
                    ),
                    modules=peer.modules,
                    listens_everywhere=peer.listens_everywhere and not self._is_local,
                ),
            )
            for host, address, of_host in wanted
        ]

    def _mpirun(self, setup: PeerSetup) -> tuple[str, ...]:
        if needs_root_option(os.environ) and not self._mpi.allow_root:
            return ()
        environment = {**os.environ, TOKEN_VARIABLE: setup.folder.name}
        command = mpirun_command(
            [one.host for one in self._hosts],
            self._mpi,
            environment,
            starts_here=self._starts_here,
            ranks_per_host=setup.processes,
        )
        exported = setup.threads is not None and not self._is_local
        return (*command, *(["-x", _THREADS] if exported else []))


def make_folder_name() -> Path:
    """Make the name of a folder that no host has yet. It is short: see `PeerSetup.folder`."""
    return Path(tempfile.gettempdir(), f"ddlplan-{secrets.token_hex(_TOKEN_BYTES)}")


def find_ports(count: int, *, is_local: bool) -> tuple[int, ...]:
    """Find ports that are free here; for other hosts, ports that are probably free."""
    if not is_local:
        first = _LOWEST_PORT + secrets.randbelow(_NUM_PORTS - count)
        return tuple(range(first, first + count))
    with ExitStack() as opened:
        listeners = [opened.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return tuple(listener.getsockname()[1] for listener in listeners)
