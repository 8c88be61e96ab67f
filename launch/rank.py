"""What does an MPI rank do? It learns the job from rank 0 and runs its node's part.

``mpirun ... python -m mpi4py -m launch.rank JOB``: the only program here that imports mpi4py. It
starts no worker by fork, and trains nothing itself. What it has to say goes to stdout, one JSON
document a line.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from mpi4py import MPI

from launch.errors import LaunchError
from launch.job import Job
from launch.mpi.ranks import Ranks
from launch.node import Node
from launch.workers.reports import JobFailed, Report
from probes.cpu import read_cpu


def main(job_file: Path) -> int:
    """Run this rank's part of the job; give the exit status."""
    comm = MPI.COMM_WORLD
    # An orphan is nobody's: mpirun has gone without a word, so the job is over.
    parent = os.getppid()
    job = _learn_job(Ranks(comm), job_file)
    if comm.size != len(job.nodes):
        message = f"MPI started {comm.size} ranks for {len(job.nodes)} hosts: is this mpirun ours?"
        _say(_failed(socket.gethostname(), message))
        return 1
    host = job.nodes[comm.rank].host
    node = Node(job, comm.rank, read_cpu(), _say, lambda: os.getppid() == parent)
    try:
        return 0 if node.train() else 1
    except LaunchError as error:
        _say(_failed(host, str(error)))
        return 1


def _learn_job(ranks: Ranks, job_file: Path) -> Job:
    """Give every rank the job that rank 0 read. Collective."""
    return Job.decode(ranks.broadcast(job_file.read_bytes() if ranks.rank == 0 else b""))


def _failed(host: str, message: str) -> JobFailed:
    return JobFailed(node=host, worker=0, workers=0, message=message, log="", log_tail="")


def _say(report: Report) -> None:
    sys.stdout.buffer.write(report.encode())
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
