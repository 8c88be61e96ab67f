"""What does an MPI rank do? It learns the job from rank 0 and runs its node's part.

``mpirun ... python -m mpi4py -m launch.rank JOB``: it starts no worker by fork, and trains nothing
itself. What it has to say goes to stdout, one JSON document a line.
"""

from __future__ import annotations

import os
import platform
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

# A rank that is killed breaks its connections, and Open MPI ends the ranks at their other ends: in
# milliseconds, so that mpirun hears of these first and never says which one was killed, and how.
os.environ.setdefault("OMPI_MCA_mpi_abort_delay", "2")

from mpi4py import MPI

from launch.errors import LaunchError
from launch.exchange.exchange import Exchange
from launch.exchange.server import StepServer, SumTimes
from launch.job import Job
from launch.mpi.lifeline import Lifeline
from launch.mpi.ranks import Ranks
from launch.node import Node
from launch.process_end import end_with_parent
from launch.pulse import Pulse
from launch.run_directory import RunDirectory
from launch.share_keeper import ShareKeeper
from launch.shares import batch_granule, smallest_batch
from launch.training.handles import GroupHandles
from launch.voice import Voice
from launch.watch import Watch
from launch.wishes import Wishes
from launch.workers.fork_servers import ForkServers
from launch.workers.reports import EndWished, Warned, node_failed
from probes.cpu import read_cpu
from probes.hardware import Cpu

_CAUSE_LIMIT_S = 5.0
_UNWATCHED = (
    "{}: no connection to the first host beside MPI's own, so that its loss would be noticed late: "
    "does a firewall close ports that MPI does not use?"
)


def main(job_file: Path, cpu: Cpu | None = None, servers: ForkServers | None = None) -> int:
    """Run this rank's part of the job; give the exit status.

    Args:
        job_file: What rank 0 reads the job from.
        cpu: Processors of this node; looked at when left out.
        servers: Fork the workers, where several jobs follow one another.
    """
    # mpirun's daemon: once it has gone without a word the job is over, and its ranks with it.
    end_with_parent(os.getppid())
    comm, voice, wishes = MPI.COMM_WORLD, Voice(), Wishes()
    wishes.listen(is_heard=comm.rank == 0)
    ranks = Ranks(comm)
    job = _learn_job(ranks, job_file)
    if comm.size != len(job.nodes):
        message = f"MPI started {comm.size} ranks for {len(job.nodes)} hosts: is this mpirun ours?"
        voice.say(node_failed(socket.gethostname(), message))
        return 1
    hosts = [node.host for node in job.nodes]
    if fault := _find_mix_up(job, comm.rank):
        voice.say(node_failed(hosts[comm.rank], fault))
        return 1
    node = Node(
        job,
        comm.rank,
        cpu or read_cpu(),
        voice.say,
        make_server=partial(_make_exchange, comm, job) if comm.size > 1 else StepServer,
        wishes=wishes,
    )
    pulse = Pulse(comm.Dup())
    with (
        _leaving_nothing(node),
        Lifeline(ranks, job.networks) as lifeline,
        Watch(lifeline, pulse, comm.rank, hosts, voice),
    ):
        if lifeline.unwatched and comm.rank == 0:
            unwatched = ", ".join(hosts[rank] for rank in lifeline.unwatched)
            voice.say(Warned(message=_UNWATCHED.format(unwatched)))
        is_done = _train(node, servers, hosts[comm.rank], voice)
        if is_done and wishes.end_signal is not None:
            voice.say(EndWished(signal=wishes.end_signal))
        if is_done:
            ranks.barrier()  # here a host that is lost is missed, in MPI's own end it is not
        return 0 if is_done else 1


def _find_mix_up(job: Job, rank: int) -> str | None:
    """Say where this rank should be, if it is on another host: it would train that one's plan."""
    expected, here = job.nodes[rank].machine, platform.node()
    if expected in (None, here):
        return None
    return (
        f"MPI started rank {rank} on {here}, not on {expected}: does this mpirun keep the order of "
        "the hosts that it is given?"
    )


@contextmanager
def _leaving_nothing(node: Node) -> Iterator[None]:
    """Let a node that has done nothing leave nothing when mpirun ends it because another failed.

    Under Slurm, where SIGTERM is a wish, it stays that.
    """

    def leave(number: int, _: object) -> None:
        node.leave_nothing()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    usual = signal.getsignal(signal.SIGTERM)
    if usual is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, usual)


def _train(node: Node, servers: ForkServers | None, host: str, voice: Voice) -> bool:
    try:
        return node.train(servers)
    except LaunchError as error:
        voice.say(node_failed(host, str(error)))
    except OSError as error:  # its disk is full, or the folder of the run cannot be made there
        where = "" if error.filename is None else f"{error.filename}: "
        reason = (error.strerror or str(error)).lower()
        voice.say(node_failed(host, f"{where}{reason}"))
    except MPI.Exception as error:
        # Another rank has gone, and the connection to it with it. mpirun is about to say how, and
        # ends all ranks; were this one faster to end the job, the cause would never be told.
        time.sleep(_CAUSE_LIMIT_S)
        message = f"lost the connection to another host: {error}"
        voice.say(node_failed(host, message, is_consequence=True))
    return False


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
        hosts=[node.host for node in job.nodes],
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
        granules=[batch_granule(node.plan) for node in job.nodes],
    )


def _learn_job(ranks: Ranks, job_file: Path) -> Job:
    """Give every rank the job that rank 0 read. Collective."""
    job = Job.decode(ranks.broadcast(job_file.read_bytes() if ranks.rank == 0 else b""))
    if ranks.rank == 0 and job_file != RunDirectory(Path(job.run_directory)).job:
        job_file.unlink()  # handed over for this rank alone
    return job


if __name__ == "__main__":
    if status := main(Path(sys.argv[1])):
        os._exit(status)  # not by MPI, which would wait as above
