"""Which command starts a program on every node? One of mpirun, or of srun where Slurm is."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence

from launch.hosts.line import Host
from launch.mpi.mpirun import mpirun_command
from launch.mpi.settings import MpiSettings
from launch.mpi.srun import srun_command


def mpi_command(
    hosts: Sequence[Host],
    program: Sequence[str],
    settings: MpiSettings,
    environment: Mapping[str, str],
    *,
    starts_here: bool,
) -> list[str]:
    """Give the command that runs a program with one rank per host, as an argument list.

    Rank ``i`` runs on ``hosts[i]``. ``-m mpi4py``: an error in one rank then ends all, which else
    would wait for it for ever. ``-P``: a user's ``launch/`` in the working folder must not be
    taken for ours. The Python is this one's path, the same on each host.

    Inside a Slurm allocation srun starts the ranks: it knows the nodes, holds them to what was
    granted, and needs no ssh. Who names an mpirun gets that one even there.

    Args:
        hosts: One or more, each once.
        program: Module of ours, as ``python -m`` takes it, and its arguments.
        settings: What the user and the checks of the hosts have chosen.
        environment: Variables that the command will be started with.
        starts_here: Whether the first host is this machine. No other one may be.

    Raises:
        LaunchError: There is no MPI that can do it.
    """
    ranks = [sys.executable, "-P", "-m", "mpi4py", "-m", *program]
    if uses_srun(settings, environment):
        return [*srun_command(hosts, settings.networks), *ranks]
    start = mpirun_command(hosts, settings, environment, starts_here=starts_here)
    return [*start, *ranks]


def uses_srun(settings: MpiSettings, environment: Mapping[str, str]) -> bool:
    """Whether Slurm starts the ranks, so that neither mpirun nor ssh is needed."""
    if settings.mpirun is not None or "SLURM_JOB_ID" not in environment:
        return False
    return shutil.which("srun", path=environment.get("PATH")) is not None
