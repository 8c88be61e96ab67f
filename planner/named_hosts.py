"""Which machines does the user mean? Those of the host file, else of the Slurm allocation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from launch.hosts.file import HostList, expand_hosts, is_this_machine, read_host_file
from launch.hosts.line import Host

ALLOCATION = "SLURM_JOB_NODELIST"


def find_hosts(file: Path | None, environment: Mapping[str, str]) -> HostList:
    """Give the hosts of the file, else of the Slurm allocation, else this machine.

    Raises:
        HostFileError: The file or the allocation cannot be read.
        UnsafeHostError: A name could be taken for an option or a command.
    """
    if file is not None:
        return read_host_file(file)
    return expand_hosts(environment.get(ALLOCATION) or "localhost", source=ALLOCATION)


def is_only_here(hosts: Sequence[Host]) -> bool:
    """Whether this machine is all that is meant."""
    return len(hosts) == 1 and is_this_machine(hosts[0])
