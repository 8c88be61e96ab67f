"""A rank that works in a folder of its own, as if other hosts did not see it: ``FOLDER JOB...``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import rank_of_four

from launch.rank.rank import main
from launch.workers.fork_server_pool import ForkServerPool

if __name__ == "__main__":
    folder, *jobs = map(Path, sys.argv[1:])
    own = folder / f"rank{os.environ['OMPI_COMM_WORLD_RANK']}"
    own.mkdir()
    os.chdir(own)
    with ForkServerPool() as servers:
        for job in jobs:
            if status := main(job, rank_of_four.FOUR, servers):
                sys.exit(status)
