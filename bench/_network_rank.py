"""A rank that measures the network as `ddlplan probe --hosts` does; rank 0 prints it as JSON."""

from __future__ import annotations

import sys

from mpi4py import MPI

from planner.cluster_tuning.network import measure_network
from probes import codec


def main() -> None:
    """Measure links, and the sum of so many bytes."""
    found = measure_network(MPI.COMM_WORLD, [int(sys.argv[1])])
    if MPI.COMM_WORLD.rank == 0:
        print(codec.encode(found).decode(), flush=True)


if __name__ == "__main__":
    main()
