"""A rank whose node has four cores, whatever this machine has: each stands for several.

Runs one job after the other, so that torch is loaded once for all of them. What is said of a job
goes into a file beside it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from launch.rank.rank import main
from launch.workers.fork_server_pool import ForkServerPool
from probes.hardware import CoreLimit, Cpu

usable = sorted(os.sched_getaffinity(0))
FOUR = Cpu(
    architecture="x86_64",
    logical_cores=4,
    usable_cores=4,
    core_ids=(usable[0], usable[-1]) * 2,
    limits=(CoreLimit(source="test", cores=4),),
)


def run_all(job_files: Iterable[str]) -> None:
    with ForkServerPool() as servers:
        for job_file in map(Path, job_files):
            rank = os.environ["OMPI_COMM_WORLD_RANK"]
            with job_file.with_name(f"reports-{rank}").open("wb") as said:
                os.dup2(said.fileno(), sys.stdout.fileno())
            if status := main(job_file, FOUR, servers):
                sys.exit(status)


if __name__ == "__main__":
    run_all(sys.argv[1:])
