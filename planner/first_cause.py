"""Why did a job fail? Of all that was seen, what happened first: the rest followed from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from launch.hosts.line import Host
from launch.hosts.ssh import ssh_name
from launch.mpi.dead_rank import find_dead_rank
from launch.mpi.lost_host import find_lost_host
from launch.process_end import explain_exit
from launch.workers.reports import JobFailed, lost_host, node_failed


def find_cause(said: Sequence[JobFailed], log: str, hosts: Sequence[Host]) -> JobFailed | None:
    """Give the first cause, ``None`` where nobody has seen one.

    What a node saw of its own workers counts first: that they end because another node does
    cannot be. A rank that dies says nothing, but its daemon does. That a node is missed is only a
    consequence, where one of these is known.

    Args:
        said: By the ranks, in the order in which it was heard.
        log: What mpirun wrote to stderr.
        hosts: By rank.
    """
    if own := [failure for failure in said if not failure.is_consequence]:
        return own[0]
    dead = find_dead_rank(log)
    if dead is not None and dead.rank < len(hosts):
        message = f"rank {dead.rank} was {explain_exit(-dead.signal)}"
        return replace(node_failed(hosts[dead.rank].name, message), signal=dead.signal)
    if lost := [failure for failure in said if failure.is_lost_host]:
        return lost[0]
    if (name := find_lost_host(log)) is not None:
        names = {ssh_name(host): host.name for host in hosts}
        return lost_host(names.get(name, name), "does not answer mpirun any more")
    return said[0] if said else None
