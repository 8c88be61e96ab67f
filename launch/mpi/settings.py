"""MPI settings that the user and the checks of the hosts have chosen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class MpiSettings:
    """Settings of every MPI job of one command."""

    mpirun: str | None = None
    """A site's own, by its path or a name on the path; ``None`` for the bundled one."""

    ssh_config: Path | None = None
    """File of `launch.hosts.ssh.write_ssh_config`; ``None`` where no host is logged in to."""

    networks: tuple[str, ...] = ()
    """Networks between the nodes, such as ``10.0.0.0/24``; empty leaves it to MPI."""

    allow_root: bool = False
    """Whether the user allows it to run as root."""
