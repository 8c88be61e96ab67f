"""How does Slurm start the ranks?"""

from __future__ import annotations

from collections.abc import Sequence

from launch.hosts.line import Host


def srun_command(hosts: Sequence[Host]) -> list[str]:
    """Give srun and its options.

    ``--mpi=pmix``: without it Open MPI would start N jobs of one rank. ``--cpu-bind=none``: as
    mpirun's ``--bind-to none``. ``--distribution=arbitrary``: Slurm would sort the nodes, and
    rank ``i`` be another host than the i-th. ``--overlap``: who works in a step of the
    allocation (``srun --pty bash``) holds its cores, and ours would wait for them for ever.
    ``--kill-on-bad-exit``: a rank that fails ends the others. ``--export=ALL``: whatever the batch
    script was submitted with, ranks need our variables.
    """
    num_ranks = str(len(hosts))
    return [
        "srun",
        *(f"--nodes={num_ranks}", f"--ntasks={num_ranks}", "--ntasks-per-node=1"),
        *("--nodelist=" + ",".join(host.name for host in hosts), "--distribution=arbitrary"),
        *("--mpi=pmix", "--cpu-bind=none", "--overlap", "--kill-on-bad-exit=1", "--export=ALL"),
    ]
