"""Does MPI start one rank on each host, and do they reach each other? A tiny job is the proof."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from launch.errors import LaunchError
from launch.hosts.ask import Answer, ask_all
from launch.hosts.line import Host
from launch.mpi.command import mpi_command
from launch.mpi.scratch import MpirunScratch
from launch.mpi.settings import MpiSettings

LIMIT_S = 45.0
MARK = "ddlplan_roll_call"
MPI_PORTS = (
    "MPI connects the hosts to each other at ports of the ephemeral range, which a firewall must "
    "let through"
)
"""What may be the matter where ranks wait for one another."""


def find_world_fault(
    hosts: Sequence[Host],
    settings: MpiSettings,
    environment: Mapping[str, str],
    *,
    host_names: Sequence[str],
    starts_here: bool,
    limit_s: float = LIMIT_S,
    ask: Callable[..., Sequence[Answer]] = ask_all,
) -> str | None:
    """Start the smallest job there is; say what is wrong with it, ``None`` where nothing is.

    Args:
        hosts: As for `mpi_command`.
        settings: Likewise.
        environment: Likewise.
        host_names: What each of the hosts calls itself.
        starts_here: Likewise.
        limit_s: Seconds after which it is ended.
        ask: Runs the command.
    """
    try:
        command = mpi_command(
            hosts, ["launch.mpi.roll_call"], settings, environment, starts_here=starts_here
        )
    except LaunchError as error:
        return str(error)
    with MpirunScratch(environment) as scratch:
        (answer,) = ask([scratch.wrap(command)], limit_s=limit_s)
    if answer.code is None:
        return f"no answer within {limit_s:g} s{_said(answer.err)}: {MPI_PORTS}"
    if answer.code != 0:
        return f"exit code {answer.code}{_said(answer.err)}"
    names = _names(answer.out)
    if names is None or len(names) != len(hosts):
        found = "no ranks" if names is None else f"{len(names)} of {len(hosts)} ranks"
        return f"MPI joined {found}: is this mpirun of the MPI that mpi4py uses? leave out --mpirun"
    wrong = [
        f"{host.name} got the rank of {name}"
        for host, name, expected in zip(hosts, names, host_names, strict=True)
        if name != expected
    ]
    return f"{wrong[0]}: is {hosts[0].name} the machine that you mean?" if wrong else None


def _names(out: str) -> list[str] | None:
    for line in out.splitlines():
        if line.startswith(f'{{"{MARK}"'):
            try:
                return list(json.loads(line)[MARK])
            except ValueError:
                return None
    return None


def _said(err: str) -> str:
    """Give the first thing that mpirun said, without the frame that it draws around it."""
    lines = [" ".join(line.split()) for line in err.splitlines()]
    said = [line for line in lines if any(char.isalnum() for char in line)]
    said = [line for line in said if "plm:ssh: Warning: setpgid" not in line]  # of no account
    return f" ({' '.join(said[:3])[:300]})" if said else ""
