"""Contract of every peer."""

from __future__ import annotations

import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from launch.packages.install_command import install_command
from launch.packages.malicious_releases import find_malicious_release
from launch.workload import Workload
from planner.plans.software import find_version

SCRIPTS = Path(__file__).with_name("scripts")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSetup:
    """What a peer is told; ``None`` leaves it at its default."""

    workload: Workload

    addresses: tuple[str, ...]
    """Of the hosts, at which the others reach them, in the order of their ranks."""

    node_batch: int
    """Samples of a step on each host, over all its processes."""

    processes: int
    """On each host."""

    threads: int | None = None
    """Of each process."""

    channels_last: bool = False

    loader_workers: int = 0
    """Of each process."""

    folder: Path
    """Private folder that each host has while the peer runs there. Its name is short, because names
    of sockets are below it."""

    ports: tuple[int, ...]
    """TCP ports that are free on the first host."""

    is_local: bool = True
    """Whether this machine alone trains."""

    mpirun: tuple[str, ...] = ()
    """mpirun with all its options for so many processes on these hosts; empty where this user may
    not start it."""

    @property
    def world_size(self) -> int:
        """Processes on all hosts."""
        return self.processes * len(self.addresses)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStart:
    """A program that has to be started."""

    command: Sequence[str]

    host: int | None = 0
    """Number of the host that starts it; ``None`` for this machine, whichever train."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Beside the variables that every peer gets."""

    files: Mapping[str, str] = field(default_factory=dict)
    """Texts by their names in `PeerSetup.folder`, which are there before it starts."""


class Peer(ABC):
    """Another way to train the same model on the same data. Keeps no state.

    Its training script is in `planner.peers.scripts`, as a user of the library would write it. It
    reports each step by `planner.peers.scripts._task`, trains until it is ended, and loads the use
    case through `launch.use_cases`, with its own `step` and `collate` where it has them.

    Args:
        name: Of its module.

    Attributes:
        distribution: Package whose version is shown.
        modules: What must be importable.
        script: File in ``scripts``.
        is_for_hosts: Whether it trains on several hosts too.
        needs_mpirun: Whether mpirun starts it.
        is_one_process: Whether its users start one process on a host, by its guide, and not one for
            each core.
        listens_everywhere: Whether a server of it listens on all addresses of a host, and has no
            option for one: it trains on several hosts only where each has one network.
    """

    distribution: str = "torch"
    modules: tuple[str, ...] = ()
    script: str
    is_for_hosts: bool = True
    needs_mpirun: bool = False
    is_one_process: bool = False
    listens_everywhere: bool = False

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def version(self) -> str | None:
        """Version of its package, ``None`` where it is not installed."""
        return find_version(self.distribution)

    def find_obstacle(self, setup: PeerSetup) -> str | None:
        """Give why it cannot train here, in one line with the way out; ``None`` where it can.

        Imports no library.
        """
        if any(find_spec(module) is None for module in self.modules):
            return f"not installed: {install_command('ddlplan[peers]')}"
        for module in self.modules:
            if (why := find_malicious_release(module)) is not None:
                return why
        if len(setup.addresses) > 1 and not self.is_for_hosts:
            return "it trains on one host: leave out --hosts"
        if self.needs_mpirun and not setup.mpirun:
            return "mpirun refuses to run as root: pass --allow-run-as-root in a container"
        if setup.node_batch % setup.processes:
            return (
                f"node_batch={setup.node_batch} and processes={setup.processes}: uneven shares: "
                "choose a batch that can be divided"
            )
        return None

    @abstractmethod
    def starts(self, setup: PeerSetup) -> list[PeerStart]:
        """Give the programs to start, in this order: its own launcher with the script.

        Raises:
            LaunchError: The launcher is missing.
        """

    def training_command(self, setup: PeerSetup, *options: str) -> list[str]:
        """Give the script with the options that all of them have, and some of its own."""
        workload = setup.workload
        return [
            str(SCRIPTS / self.script),
            *("--use-case", workload.use_case),
            *(("--data", workload.data) if workload.data else ()),
            *("--seed", str(workload.seed)),
            *("--batch-size", str(setup.node_batch // setup.processes)),
            *("--loader-workers", str(setup.loader_workers)),
            *(("--channels-last",) if setup.channels_last else ()),
            *("--reports", str(setup.folder)),
            *options,
        ]


def torchrun_starts(setup: PeerSetup, program: Sequence[str]) -> list[PeerStart]:
    """Give torchrun on each host, with a program behind torchrun's own options."""
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    torchrun += ["--nproc-per-node", str(setup.processes)]
    if setup.is_local:
        return [PeerStart(command=[*torchrun, "--standalone", *program])]
    torchrun += ["--nnodes", str(len(setup.addresses)), "--master-addr", setup.addresses[0]]
    torchrun += ["--master-port", str(setup.ports[0])]
    return [
        PeerStart(command=[*torchrun, "--node-rank", str(number), *program], host=number)
        for number in range(len(setup.addresses))
    ]


def find_program(name: str) -> str:
    """Give a program of this environment, else its bare name for the path."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name) or name
