"""Which host did mpirun lose? It says so in its log, and nowhere else."""

from __future__ import annotations

import re

_LOST = re.compile(
    r"lost communication with a remote daemon.*?Remote daemon:[^\n]* on node (\S+)", re.S
)

LOGIN_BROKEN = (0, 255)
"""Exit codes of mpirun where the ssh that it had started was killed, and where that has lost a host
before mpirun did: its log is empty."""


def find_lost_host(log: str) -> str | None:
    """Give the first host that did not answer any more, as `launch.hosts.ssh.ssh_name` has it.

    Args:
        log: What mpirun wrote to stderr.
    """
    found = _LOST.search(log)
    return found.group(1) if found else None
