"""Which ranks are there? The smallest MPI program: every rank gives the name of its host.

``mpirun ... python -m mpi4py -m launch.mpi.roll_call``: rank 0 prints the names, as one line.
"""

from __future__ import annotations

import json
import socket
import sys

from mpi4py import MPI

from launch.mpi.ranks import Ranks
from launch.mpi.world import MARK


def main() -> None:
    """Gather the names. Collective."""
    names = Ranks(MPI.COMM_WORLD).gather(socket.gethostname().encode())
    if names is not None:
        print(json.dumps({MARK: [name.decode() for name in names]}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
    sys.exit(0)
