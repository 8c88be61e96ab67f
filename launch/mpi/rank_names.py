"""The smallest MPI program: every rank gives the name of its host.

``mpirun ... python -m mpi4py -m launch.mpi.rank_names``: rank 0 reports the names.
"""

from __future__ import annotations

import socket
import sys

from mpi4py import MPI

from launch.mpi.ranks import Ranks
from launch.reports import RanksJoined


def main() -> None:
    """Gather the names. Collective."""
    ranks = Ranks(MPI.COMM_WORLD)
    names = ranks.all_gather(socket.gethostname().encode())
    if ranks.rank == 0:
        report = RanksJoined(names=tuple(name.decode() for name in names))
        sys.stdout.buffer.write(report.encode())
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
    sys.exit(0)
