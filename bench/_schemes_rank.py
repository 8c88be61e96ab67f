"""A rank that trains one job after the other, so that torch is loaded once for all: ``JOB...``.

What it reports of a job goes into a file beside that job's, with the rank's number.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from launch.rank.rank import main
from launch.workers.fork_server_pool import ForkServerPool

if __name__ == "__main__":
    with ForkServerPool() as servers:
        for job_file in map(Path, sys.argv[1:]):
            rank = os.environ["OMPI_COMM_WORLD_RANK"]
            with job_file.with_name(f"reports-{rank}").open("wb") as said:
                os.dup2(said.fileno(), sys.stdout.fileno())
            if status := main(job_file, None, servers):
                sys.exit(status)
