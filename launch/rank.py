"""What does an MPI rank do? It learns the job from rank 0 and runs its node's part.

``mpirun ... python -m mpi4py -m launch.rank JOB``: it starts no worker by fork, and trains nothing
itself. What it has to say goes to stdout, one JSON document a line.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from mpi4py import MPI

from launch.errors import LaunchError
from launch.exchange.exchange import Exchange
from launch.exchange.server import StepServer, SumTimes
from launch.job import Job
from launch.mpi.ranks import Ranks
from launch.node import Node
from launch.share_keeper import ShareKeeper
from launch.shares import smallest_batch
from launch.training.handles import GroupHandles
from launch.workers.fork_servers import ForkServers
from launch.workers.reports import JobFailed, Report
from probes.cpu import read_cpu
from probes.hardware import Cpu


def main(job_file: Path, cpu: Cpu | None = None, servers: ForkServers | None = None) -> int:
    """Run this rank's part of the job; give the exit status.

    Args:
        job_file: What rank 0 reads the job from.
        cpu: Processors of this node; looked at when left out.
        servers: Fork the workers, where several jobs follow one another.
    """
    comm = MPI.COMM_WORLD
    # An orphan is nobody's: mpirun has gone without a word, so the job is over.
    parent = os.getppid()
    job = _learn_job(Ranks(comm), job_file)
    if comm.size != len(job.nodes):
        message = f"MPI started {comm.size} ranks for {len(job.nodes)} hosts: is this mpirun ours?"
        _say(_failed(socket.gethostname(), message))
        return 1
    host = job.nodes[comm.rank].host
    node = Node(
        job,
        comm.rank,
        cpu or read_cpu(),
        _say,
        lambda: os.getppid() == parent,
        make_server=partial(_make_exchange, comm, job) if comm.size > 1 else StepServer,
    )
    try:
        return 0 if node.train(servers) else 1
    except LaunchError as error:
        _say(_failed(host, str(error)))
        return 1


def _make_exchange(
    comm: MPI.Comm,
    job: Job,
    handles: GroupHandles,
    workers: int,
    on_sum: Callable[[SumTimes], None],
) -> Exchange:
    return Exchange(
        comm.Dup(),
        handles,
        workers,
        keeper=_make_keeper(job),
        is_rounded=job.is_rounded,
        on_sum=on_sum,
    )


def _make_keeper(job: Job) -> ShareKeeper | None:
    """Make what changes the shares; ``None`` where too little is known, or nobody wants it."""
    times = [node.step_time for node in job.nodes if node.step_time is not None]
    if job.keeps_shares or len(times) < len(job.nodes):
        return None
    return ShareKeeper(
        times,
        job.node_batches,
        [node.max_batch for node in job.nodes],
        floors=[smallest_batch(node.plan) for node in job.nodes],
    )


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
