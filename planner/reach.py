"""How does the user want hosts to be reached? By which mpirun and ssh, and whether as root."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.errors import HostUnreachableError, LaunchError
from launch.hosts.check import check_hosts
from launch.hosts.checked import HostsChecked
from launch.hosts.line import Host
from launch.hosts.ssh import write_ssh_config
from launch.mpi.command import uses_srun
from launch.mpi.generation import read_generation
from launch.mpi.mpirun import find_mpirun
from launch.mpi.root import needs_root_option
from launch.mpi.settings import MpiSettings
from launch.mpi.world import find_world_fault
from planner.errors import RefusedError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How the user wants the hosts to be reached."""

    ssh_config: Path | None = None
    """Read in place of ``~/.ssh/config``."""

    mpirun: str | None = None
    """A site's own, in place of the one that came with us."""

    allow_root: bool = False

    def check_mpirun(self) -> None:
        """See that the mpirun that the user names, if there is one, is one that we speak to.

        Raises:
            UsageError: It is not there, does not run, or is none of Open MPI 4 or later.
        """
        if self.mpirun is None:
            return
        try:
            read_generation(find_mpirun(self.mpirun))
        except LaunchError as error:
            raise UsageError(f"--{error}") from error  # it begins with mpirun=...

    def check_root(self) -> None:
        """See that root may start mpirun.

        Raises:
            RefusedError: This is root, and the user has not said that it should be.
        """
        if needs_root_option(os.environ) and not self.allow_root:
            raise RefusedError(
                "running as root, which mpirun refuses because a slip can ruin the machine: "
                "run as a user, or in a container pass --allow-run-as-root"
            )

    def check(
        self,
        hosts: Sequence[Host],
        *,
        use_case: str | None = None,
        data: str | None = None,
        runs: Path | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> HostsChecked:
        """Look whether the hosts can do a job together; see `check_hosts`."""
        by_srun = uses_srun(MpiSettings(mpirun=self.mpirun), os.environ)
        return check_hosts(
            hosts,
            ssh_config=self.ssh_config,
            use_case=use_case,
            data=data,
            runs=runs,
            by_srun=by_srun,
            on_progress=on_progress,
        )

    def find_world_fault(
        self, checked: HostsChecked, names: Sequence[str] | None = None
    ) -> str | None:
        """Start a tiny MPI job; say what is wrong with it, ``None`` where nothing is.

        Args:
            checked: What the checks of the hosts showed.
            names: Hosts that will take part, by rank; all good ones where left out.
        """
        good = {host.name: host for host in checked.ranked}
        hosts = [good[name] for name in names or good]
        with tempfile.TemporaryDirectory(prefix="ddlplan-") as folder:
            config = Path(folder, "ssh_config")
            write_ssh_config(hosts, config, include=self.ssh_config)
            return find_world_fault(
                hosts,
                MpiSettings(
                    mpirun=self.mpirun,
                    ssh_config=config,
                    networks=checked.networks if len(hosts) > 1 else (),
                    allow_root=self.allow_root,
                ),
                os.environ,
                host_names=[checked.facts[host.name].host_name for host in hosts],
                starts_here=hosts[0].name == checked.this_machine,
            )

    def check_world(self, checked: HostsChecked, names: Sequence[str] | None = None) -> None:
        """See that MPI starts one rank on each host, and that they reach each other.

        Args:
            checked: As for `find_world_fault`.
            names: Likewise.

        Raises:
            HostUnreachableError: It does not, or they do not.
        """
        if (fault := self.find_world_fault(checked, names)) is not None:
            raise HostUnreachableError(f"MPI ranks: {fault}")
