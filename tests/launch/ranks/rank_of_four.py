"""A rank whose node has four cores, whatever this machine has: each stands for several.

Runs one job after the other, so that torch is loaded once for all of them. What is said of a job
goes into a file beside it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from mpi4py import MPI

from launch.gradient_sync.algorithms.ring import Ring
from launch.gradient_sync.allreduce import server
from launch.gradient_sync.allreduce.bucket_sum import FlatArray
from launch.gradient_sync.allreduce.encoded_sum import EncodedSum, make_sum
from launch.gradient_sync.wire_formats.fp32 import ExactFormat
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
_HELD_S = 0.02


class SlowSum(EncodedSum):
    """Keeps each sum for a while, as a slow network does."""

    def __init__(self, comm: MPI.Comm, **_: str) -> None:
        super().__init__(comm, Ring(), ExactFormat())
        self._held: list[tuple[float, FlatArray]] = []

    def take_finished(self) -> list[FlatArray]:
        now = time.monotonic()
        self._held += [(now + _HELD_S, block) for block in super().take_finished()]
        done = [block for until, block in self._held if until <= now]
        self._held = [(until, block) for until, block in self._held if until > now]
        return done


def run_all(job_files: Iterable[str]) -> None:
    with ForkServerPool() as servers:
        for job_file in map(Path, job_files):
            server.make_sum = SlowSum if job_file.name == "slow-job.json" else make_sum
            rank = os.environ["OMPI_COMM_WORLD_RANK"]
            with job_file.with_name(f"reports-{rank}").open("wb") as said:
                os.dup2(said.fileno(), sys.stdout.fileno())
            if status := main(job_file, FOUR, servers):
                sys.exit(status)


if __name__ == "__main__":
    run_all(sys.argv[1:])
