"""How does Slurm start the ranks?"""

from __future__ import annotations

from collections.abc import Sequence

from launch.hosts.line import Host
from launch.mpi.transport import as_variables, message_settings


def srun_command(hosts: Sequence[Host], networks: Sequence[str]) -> list[str]:
    """Give srun and its options.

    ``--mpi=pmix``: without it Open MPI would start N jobs of one rank. ``--cpu-bind=none``: as
    mpirun's ``--bind-to none``. ``--distribution=arbitrary``: Slurm would sort the nodes, and
    rank ``i`` be another host than the i-th. ``--overlap``: who works in a step of the
    allocation (``srun --pty bash``) holds its cores, and ours would wait for them for ever.
    ``--kill-on-bad-exit``: a rank that fails ends the others. ``--export=ALL``: whatever the batch
    script was submitted with, ranks need our variables. Tried with Slurm
    22.05 and its PMIx 4.

    Args:
        hosts: Nodes of the allocation.
        networks: As in `launch.mpi.settings.MpiSettings`.
    """
    num_ranks = str(len(hosts))
    return [
        "srun",
        *(f"--nodes={num_ranks}", f"--ntasks={num_ranks}", "--ntasks-per-node=1"),
        *("--nodelist=" + ",".join(host.name for host in hosts), "--distribution=arbitrary"),
        *("--mpi=pmix", "--cpu-bind=none", "--overlap", "--kill-on-bad-exit=1", "--export=ALL"),
        *("env", *as_variables(message_settings(networks))),
    ]
