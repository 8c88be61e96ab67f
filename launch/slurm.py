"""Which machines has Slurm given us?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from launch.host_line import MAX_HOSTS, Host, Line
from launch.hosts import HostList

_OUTER_COMMA = re.compile(r",(?![^\[]*\])")


def find_slurm_hosts(environment: Mapping[str, str]) -> HostList | None:
    """Give the nodes of the allocation that this process is in, ``None`` outside of one.

    Raises:
        HostFileError: Slurm's list cannot be understood.
    """
    nodes = environment.get("SLURM_JOB_NODELIST", "").strip()
    if not nodes:
        return None
    line = Line("SLURM_JOB_NODELIST", 1)
    hosts: list[Host] = []
    for entry in _OUTER_COMMA.split(nodes):
        hosts.extend(line.hosts(entry, room=MAX_HOSTS - len(hosts)))
    return HostList(hosts=tuple(hosts))
