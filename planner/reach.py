"""How does the user want hosts to be reached? By which mpirun and ssh, and whether as root."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.hosts.check import check_hosts
from launch.hosts.checked import HostsChecked
from launch.hosts.line import Host
from launch.mpi.command import uses_srun
from launch.mpi.root import needs_root_option
from launch.mpi.settings import MpiSettings
from planner.errors import RefusedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How the user wants the hosts to be reached."""

    ssh_config: Path | None = None
    """Read in place of ``~/.ssh/config``."""

    mpirun: str | None = None
    """A site's own, in place of the one that came with us."""

    allow_root: bool = False

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
        on_progress: Callable[[int, int], None] | None = None,
    ) -> HostsChecked:
        """Look whether the hosts can do a job together; see `check_hosts`."""
        by_srun = uses_srun(MpiSettings(mpirun=self.mpirun), os.environ)
        return check_hosts(
            hosts,
            ssh_config=self.ssh_config,
            use_case=use_case,
            data=data,
            by_srun=by_srun,
            on_progress=on_progress,
        )
