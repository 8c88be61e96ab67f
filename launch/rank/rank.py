"""MPI rank: receives the job from rank 0 and runs its node's part.

``mpirun ... python -m mpi4py -m launch.rank JOB``: it starts no worker by fork, and trains nothing
itself. Its reports go to stdout, one JSON document a line.
"""

from __future__ import annotations

import os
import platform
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

# A rank that is killed breaks its connections, and Open MPI ends the ranks at their other ends: in
# milliseconds, so that mpirun notices these first and never reports which one was killed, and how.
os.environ.setdefault("OMPI_MCA_mpi_abort_delay", "2")

from mpi4py import MPI

from launch.errors import LaunchError
from launch.gradient_sync.allreduce.rebalancer import Rebalancer
from launch.gradient_sync.allreduce.server import AllReduceServer
from launch.gradient_sync.node_channel.descriptors import SharedDescriptors
from launch.gradient_sync.node_channel.step_server import StepServer, StepSyncTimes
from launch.job import Job
from launch.liveness.heartbeat import Heartbeat
from launch.liveness.keepalive import Keepalive
from launch.liveness.watchdog import Watchdog
from launch.mpi.ranks import Ranks
from launch.rank.control_signals import ControlSignals
from launch.rank.node import Node
from launch.reports import EndRequested, Warned, make_node_failure
from launch.shares import NodeLimits
from launch.system.durable_files import explain_os_error
from launch.system.machine_lock import Occupant, training_noticed
from launch.system.process_end import die_with_parent
from launch.system.report_stream import ReportStream
from launch.system.run_directory import RunDirectory
from launch.workers.fork_server_pool import ForkServerPool
from probes import codec
from probes.cpu import read_cpu
from probes.hardware import Cpu

_ROOT_CAUSE_GRACE_S = 5.0
_UNCONNECTED = (
    "{}: no connection to the first host beside MPI's own, so that its loss would be noticed late: "
    "does a firewall close ports that MPI does not use?"
)


def main(job_file: Path, cpu: Cpu | None = None, servers: ForkServerPool | None = None) -> int:
    """Run this rank's part of the job; give the exit status.

    Args:
        job_file: What rank 0 reads the job from.
        cpu: Processors of this node; read when left out.
        servers: Fork the workers, where several jobs follow one another.
    """
    # mpirun's daemon: when it dies the job is over, and its ranks with it.
    die_with_parent(os.getppid())
    comm, report_stream, control_signals = MPI.COMM_WORLD, ReportStream(), ControlSignals()
    control_signals.install_handlers(acts_on_them=comm.rank == 0)
    ranks = Ranks(comm)
    job = _broadcast_job(ranks, job_file)
    if comm.size != len(job.nodes):
        message = f"MPI started ranks={comm.size} for hosts={len(job.nodes)}: is this mpirun ours?"
        report_stream.send(make_node_failure(socket.gethostname(), message))
        return 1
    hosts = [node.host for node in job.nodes]
    if fault := _find_thread_fault(comm.size) or _find_misplaced_rank(job, comm.rank):
        report_stream.send(make_node_failure(hosts[comm.rank], fault))
        return 1
    node = Node(
        job,
        comm.rank,
        cpu or read_cpu(),
        report_stream.send,
        make_server=partial(_make_server, comm, job) if comm.size > 1 else StepServer,
        control_signals=control_signals,
    )
    heartbeat = Heartbeat(comm.Dup())

    def warn(message: str) -> None:
        where = f"{hosts[comm.rank]}: " if comm.size > 1 else ""
        report_stream.send(Warned(message=where + message))

    command = f"ddlplan launch --use-case {job.workload.use_case}"
    with (
        training_noticed(Occupant.of_this_process(command), warn),
        _removing_unused_output(node),
        Keepalive(ranks, job.networks) as keepalive,
        Watchdog(keepalive, heartbeat, comm.rank, hosts, report_stream),
    ):
        if keepalive.unconnected and comm.rank == 0:
            unconnected = ", ".join(hosts[rank] for rank in keepalive.unconnected)
            report_stream.send(Warned(message=_UNCONNECTED.format(unconnected)))
        is_done = _train(node, servers, hosts[comm.rank], report_stream)
        if is_done and control_signals.end_signal is not None:
            report_stream.send(EndRequested(signal=control_signals.end_signal))
        if is_done:
            ranks.barrier()  # this notices a host that is lost, MPI's own end does not
        return 0 if is_done else 1


def _find_thread_fault(ranks: int) -> str | None:
    """Explain why MPI's thread level does not suffice, if so.

    The thread that sums gradients, the one that sends heartbeats and the main thread call MPI. A
    rank without others sends nothing.
    """
    level = MPI.Query_thread()
    if ranks == 1 or level >= MPI.THREAD_MULTIPLE:  # the standard orders the levels
        return None
    names = {MPI.THREAD_SINGLE: "single", MPI.THREAD_FUNNELED: "funneled"}
    return (
        f"MPI has thread level {names.get(level, 'serialized')} and ranks of several hosts need "
        "multiple: leave --mpirun and MPI4PY_RC_THREAD_LEVEL out, or use an MPI built with threads"
    )


def _find_misplaced_rank(job: Job, rank: int) -> str | None:
    """Explain where this rank should be, if it is on another host, whose plan it would train."""
    expected, here = job.nodes[rank].machine, platform.node()
    if expected in (None, here):
        return None
    return (
        f"MPI started rank {rank} on {here}, not on {expected}: does this mpirun keep the order of "
        "the hosts that it is given?"
    )


@contextmanager
def _removing_unused_output(node: Node) -> Iterator[None]:
    """Remove the output of a node without a step when mpirun ends it because another failed.

    Under Slurm, SIGTERM stays a control signal.
    """

    def leave(number: int, _: object) -> None:
        node.remove_unused_output()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    previous_handler = signal.getsignal(signal.SIGTERM)
    if previous_handler is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


def _train(
    node: Node, servers: ForkServerPool | None, host: str, report_stream: ReportStream
) -> bool:
    try:
        return node.train(servers)
    except LaunchError as error:
        report_stream.send(make_node_failure(host, str(error)))
    except OSError as error:  # its disk is full, or the folder of the run cannot be made there
        report_stream.send(make_node_failure(host, explain_os_error(error)))
    except MPI.Exception as error:
        # Another rank has ended, and the connection to it with it. mpirun is about to report how,
        # and ends all ranks; were this one faster to end the job, the cause would be lost.
        time.sleep(_ROOT_CAUSE_GRACE_S)
        message = f"lost the connection to another host: {error}"
        report_stream.send(make_node_failure(host, message, is_consequence=True))
    return False


def _make_server(
    comm: MPI.Comm,
    job: Job,
    descriptors: SharedDescriptors,
    workers: int,
    on_sync: Callable[[StepSyncTimes], None],
) -> AllReduceServer:
    return AllReduceServer(
        comm.Dup(),
        descriptors,
        workers,
        hosts=[node.host for node in job.nodes],
        rebalancer=_make_rebalancer(job),
        all_reduce=job.all_reduce,
        wire=job.wire,
        on_sync=on_sync,
    )


def _make_rebalancer(job: Job) -> Rebalancer | None:
    """Make the rebalancer of shares; ``None`` where too little is known, or it is switched off."""
    times = [node.step_time for node in job.nodes if node.step_time is not None]
    if job.keep_shares or len(times) < len(job.nodes):
        return None
    limits = [NodeLimits.of_plan(node.plan, node.max_batch) for node in job.nodes]
    return Rebalancer(times, job.node_batches, limits)


def _broadcast_job(ranks: Ranks, job_file: Path) -> Job:
    """Send every rank the job that rank 0 read. Collective."""
    document = ranks.broadcast(job_file.read_bytes() if ranks.rank == 0 else b"")
    job = codec.decode(document, Job, source="job", allow_unknown_keys=False)
    if ranks.rank == 0 and job_file != RunDirectory(Path(job.run_directory)).job:
        job_file.unlink()  # uploaded for this rank alone
    return job
