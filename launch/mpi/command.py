"""Command that starts a program on every node: mpirun, or srun inside Slurm."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence

from launch.hosts.host_line import Host
from launch.mpi.mpirun import mpirun_command
from launch.mpi.settings import MpiSettings
from launch.mpi.tcp_settings import as_variables, message_settings


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

    Inside a Slurm allocation srun starts the ranks: it knows the nodes, enforces what was granted,
    and needs no ssh. A named mpirun is used even there.

    Args:
        hosts: One or more, each once.
        program: Module of ours, as ``python -m`` takes it, and its arguments.
        settings: Choices of the user and of the checks of the hosts.
        environment: Variables that the command will be started with.
        starts_here: Whether the first host is this machine. No other one may be.

    Raises:
        LaunchError: There is no MPI that can do it.
    """
    ranks = [sys.executable, "-P", "-m", "mpi4py", "-m", *program]
    if uses_srun(settings, environment):
        return [*_srun_command(hosts, settings.networks), *ranks]
    start = mpirun_command(hosts, settings, environment, starts_here=starts_here)
    return [*start, *ranks]


def uses_srun(settings: MpiSettings, environment: Mapping[str, str]) -> bool:
    """Whether Slurm starts the ranks, so that neither mpirun nor ssh is needed."""
    if settings.mpirun is not None or "SLURM_JOB_ID" not in environment:
        return False
    return shutil.which("srun", path=environment.get("PATH")) is not None


def _srun_command(hosts: Sequence[Host], networks: Sequence[str]) -> list[str]:
    """Give srun and its options.

    ``--mpi=pmix``: without it Open MPI would start N jobs of one rank. ``--cpu-bind=none``: as
    mpirun's ``--bind-to none``. ``--distribution=arbitrary``: Slurm would sort the nodes, and
    rank ``i`` be another host than the i-th. ``--overlap``: a user's own step of the
    allocation (``srun --pty bash``) has its cores, and ours would wait for them for ever.
    ``--kill-on-bad-exit``: a rank that fails ends the others. ``--export=ALL``: whatever the batch
    script was submitted with, ranks need our variables. Tried with Slurm
    22.05 and its PMIx 4.
    """
    num_ranks = str(len(hosts))
    return [
        "srun",
        *(f"--nodes={num_ranks}", f"--ntasks={num_ranks}", "--ntasks-per-node=1"),
        *("--nodelist=" + ",".join(host.name for host in hosts), "--distribution=arbitrary"),
        *("--mpi=pmix", "--cpu-bind=none", "--overlap", "--kill-on-bad-exit=1", "--export=ALL"),
        *("env", *as_variables(message_settings(networks))),
    ]
