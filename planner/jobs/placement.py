"""Placement of a job's ranks: the hosts, and how they are reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.hosts.findings import CheckedHosts
from launch.hosts.host_line import Host
from launch.hosts.ssh import write_ssh_config
from launch.hosts.upload import upload
from launch.mpi.command import mpi_command
from launch.mpi.settings import MpiSettings
from launch.system.run_directory import RunDirectory
from planner.jobs.hosts import HostAccess


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The hosts of a job by rank, with all that it takes to start ranks there."""

    hosts: tuple[Host, ...]
    access: HostAccess

    starts_here: bool = True
    """Whether the first host is this machine. No other one is."""

    networks: tuple[str, ...] = ()
    """Over which the hosts reach each other, in CIDR form."""

    @classmethod
    def of(cls, checked: CheckedHosts, names: Sequence[str], access: HostAccess) -> Placement:
        """Place ranks on some of the hosts that were checked, in this order."""
        hosts = {host.name: host for host in checked.hosts}
        return cls(
            hosts=tuple(hosts[name] for name in names),
            access=access,
            starts_here=names[0] == checked.this_machine,
            networks=checked.networks if len(names) > 1 else (),
        )

    @property
    def uses_remote_hosts(self) -> bool:
        """Whether another machine takes part."""
        return len(self.hosts) > 1 or not self.starts_here

    def prepare(self, directory: RunDirectory) -> None:
        """Write the ssh configuration that the command will read.

        Raises:
            HostFileError: The user's own cannot be used.
        """
        if self.uses_remote_hosts:
            write_ssh_config(self.hosts, directory.ssh_config, include=self.access.ssh_config)

    def deliver(self, directory: RunDirectory) -> Path:
        """Copy the job's file to the first host, if that is another machine; give its name there.

        Raises:
            HostUnreachableError: The first host does not take it.
        """
        if self.starts_here:
            return directory.job
        config = None if self.access.starts_by_srun else directory.ssh_config
        return Path(upload(self.hosts[0], directory.job.read_bytes(), ssh_config=config))

    def command(
        self, program: Sequence[str], directory: RunDirectory, environment: Mapping[str, str]
    ) -> list[str]:
        """Give the command that starts a program of ours on every host, as an argument list.

        `prepare` has to be called before it runs.

        Raises:
            LaunchError: There is no MPI that can do it.
        """
        settings = self.mpi_settings(directory.ssh_config if self.uses_remote_hosts else None)
        here = self.starts_here
        return mpi_command(self.hosts, program, settings, environment, starts_here=here)

    def mpi_settings(self, ssh_config: Path | None) -> MpiSettings:
        """Give the settings of MPI on these hosts, with the file that `prepare` has written."""
        return MpiSettings(
            mpirun=self.access.mpirun,
            ssh_config=ssh_config,
            networks=self.networks,
            allow_root=self.access.allow_root,
        )
