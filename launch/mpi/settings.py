"""What have the user and the checks of the hosts chosen about MPI?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class MpiSettings:
    """Choices that hold for every MPI job of one command."""

    mpirun: str | None = None
    """A site's own, by its path or a name on the path; ``None`` for the one that came with us."""

    ssh_config: Path | None = None
    """What `launch.hosts.ssh.write_ssh_config` wrote; ``None`` where no host is logged in to."""

    networks: tuple[str, ...] = ()
    """Where the nodes reach one another, such as ``10.0.0.0/24``; empty leaves it to MPI."""

    allow_root: bool = False
    """Whether the user wants it to run even as root."""
