"""Where do the ranks of a job start, and how? On these hosts, reached as the user wants it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.hosts.checked import HostsChecked
from launch.hosts.handover import hand_over
from launch.hosts.line import Host
from launch.hosts.ssh import write_ssh_config
from launch.mpi.command import mpi_command, uses_srun
from launch.mpi.settings import MpiSettings
from launch.run_directory import RunDirectory
from planner.reach import Reach


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The hosts of a job by rank, with all that it takes to start there."""

    hosts: tuple[Host, ...]
    reach: Reach

    starts_here: bool = True
    """Whether the first host is this machine. No other one is."""

    networks: tuple[str, ...] = ()
    """Over which the hosts reach each other, in CIDR form."""

    @classmethod
    def of(cls, checked: HostsChecked, names: Sequence[str], reach: Reach) -> Placement:
        """Place ranks on some of the hosts that were checked, in this order."""
        hosts = {host.name: host for host in checked.hosts}
        return cls(
            hosts=tuple(hosts[name] for name in names),
            reach=reach,
            starts_here=names[0] == checked.this_machine,
            networks=checked.networks if len(names) > 1 else (),
        )

    @property
    def logs_in(self) -> bool:
        """Whether another machine takes part."""
        return len(self.hosts) > 1 or not self.starts_here

    def prepare(self, directory: RunDirectory) -> Path:
        """Write what the command will read; give the name of the job's file on the first host.

        Raises:
            HostFileError: The user's ssh configuration cannot be used.
            HostUnreachableError: The first host does not take the job.
        """
        config = directory.ssh_config
        if self.logs_in:
            write_ssh_config(self.hosts, config, include=self.reach.ssh_config)
        if self.starts_here:
            return directory.job
        by_srun = uses_srun(self._settings(directory), os.environ)
        document = directory.job.read_bytes()
        return Path(hand_over(self.hosts[0], document, ssh_config=None if by_srun else config))

    def command(
        self, program: Sequence[str], directory: RunDirectory, environment: Mapping[str, str]
    ) -> list[str]:
        """Give the command that starts a program of ours on every host, as an argument list.

        Args:
            program: Module and arguments.
            directory: Of the run, with what `prepare` writes.
            environment: Variables that the command will be started with.

        Raises:
            LaunchError: There is no MPI that can do it.
        """
        settings, here = self._settings(directory), self.starts_here
        return mpi_command(self.hosts, program, settings, environment, starts_here=here)

    def _settings(self, directory: RunDirectory) -> MpiSettings:
        return MpiSettings(
            mpirun=self.reach.mpirun,
            ssh_config=directory.ssh_config if self.logs_in else None,
            networks=self.networks,
            allow_root=self.reach.allow_root,
        )
