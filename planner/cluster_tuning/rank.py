"""MPI rank of cluster tuning: runs its node's part.

``mpirun ... python -m mpi4py -m planner.cluster_tuning.rank TASK``: a file on the host of
rank 0. Each rank works by itself; what it has to say goes to rank 0, whose stdout has a JSON
document a line. When all have done their parts they measure the network, and nothing else runs
meanwhile.
"""

from __future__ import annotations

import os
import platform
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import NoReturn

# A rank that is killed breaks its connections, and Open MPI ends the ranks at their other ends: in
# milliseconds, so that mpirun hears of these first and never says which one was killed.
os.environ.setdefault("OMPI_MCA_mpi_abort_delay", "2")

from mpi4py import MPI

from launch.errors import MachineBusyError
from launch.mpi.ranks import Ranks
from launch.reports import Alive, Noted, Report, Warned, make_node_failure
from launch.system.cache import cache_folder, make_folder
from launch.system.machine_lock import Occupant, timing_alone
from launch.system.process_end import die_with_parent
from planner.cluster_tuning.coordinator import Coordinator
from planner.cluster_tuning.mailbox import Mailbox
from planner.cluster_tuning.network import measure_network
from planner.cluster_tuning.node_search import LockMachine, search_node
from planner.cluster_tuning.reports import (
    ConfirmPlans,
    LeadSearch,
    MeasureNetwork,
    NodeDone,
    NodeFailed,
    NodeProbed,
    NodeReport,
)
from planner.cluster_tuning.task import ClusterPurpose, ClusterTask
from planner.exit_codes import classify_error
from planner.quantities import format_count
from probes import codec
from probes.node import probe


def main(task_file: Path) -> int:
    """Run this rank's part; give the exit status."""
    die_with_parent(os.getppid())  # mpirun's daemon: what it can no longer end must not go on
    signal.signal(signal.SIGTERM, _exit_on_signal)
    comm = MPI.COMM_WORLD
    ranks = Ranks(comm)
    document = ranks.broadcast(_read_task(task_file) if comm.rank == 0 else b"")
    task = codec.decode(document, ClusterTask, source="task", allow_unknown_keys=False)
    if comm.size != len(task.nodes):
        started, hosts = format_count(comm.size, "rank"), format_count(len(task.nodes), "host")
        message = f"MPI started {started} for {hosts}: is this mpirun ours?"
        _send_report(make_node_failure(socket.gethostname(), message))
        return 1
    ranks.barrier()
    if comm.rank == 0:
        _send_report(Alive())
    with ExitStack() as machine:
        sizes = _run_node(comm, task, machine)
        if not task.is_quick:
            measured = measure_network(comm, sizes)
            if comm.rank == 0:
                _send_report(NodeReport.of(0, measured))
    return 0


def _read_task(task_file: Path) -> bytes:
    """Read the task, which has been put there for this job alone."""
    document = task_file.read_bytes()
    task_file.unlink()
    return document


def _run_node(comm: MPI.Comm, task: ClusterTask, machine: ExitStack) -> list[int]:
    """Do this node's part, and wait for the others; give the sizes of the all-reduces to time.

    ``machine`` keeps this machine's lock while the network is measured.
    """
    ranks = Ranks(comm.Dup())  # the mailbox has the communicator for itself
    names = ranks.all_gather(platform.node().encode())
    directives: SimpleQueue[Report] = SimpleQueue()
    mailbox: Mailbox

    def send_to_node(rank: int, report: Report) -> None:
        mailbox.send(rank, report.encode())

    leaders = [node.leader for node in task.nodes]
    coordinator = Coordinator(leaders, task.message_bytes, _send_report, send_to_node)

    def on_document(sender: int, document: bytes) -> None:
        report = Report.decode(document)
        if isinstance(report, ConfirmPlans | LeadSearch | MeasureNetwork):
            directives.put(report)
        else:
            coordinator.receive(sender, report)

    with Mailbox(comm, on_document) as mailbox:
        send = partial(send_to_node, 0)
        lock = partial(_lock_machine, task, send)
        _run_part(task, comm.rank, directives, send, lock)
        while not isinstance(directive := directives.get(), MeasureNetwork):
            pass  # told to search in the place of another, when it had given up itself
        if not task.is_quick and comm.size > 1:
            _lock_in_turn(ranks, names, lock, send, machine)
    return list(directive.message_bytes)


def _run_part(
    task: ClusterTask,
    rank: int,
    directives: SimpleQueue[Report],
    send: Callable[[Report], None],
    lock: LockMachine,
) -> None:
    """Do what this node has to do; a failure of its own is none of the job."""
    node = task.nodes[rank]
    try:
        match task.purpose:
            case ClusterPurpose.PROBE:
                with nullcontext() if task.is_quick else lock():
                    hardware = probe(
                        quick=task.is_quick,
                        data=None if task.data is None else Path(task.data),
                        local=None if task.data is None else make_folder(cache_folder()),
                    )
                send(NodeProbed(hardware=hardware, is_new=True))
            case ClusterPurpose.TUNE:
                assert task.request is not None
                leads = node.leader == rank
                search_node(node, task.request, task.software, directives, send, lock, leads=leads)
    except Exception as error:  # noqa: BLE001 - the other nodes go on, whatever happened here
        if classify_error(error) is None:
            traceback.print_exc()
        send(NodeFailed.of(error))
    else:
        send(NodeDone())


def _lock_machine(
    task: ClusterTask, send: Callable[[Report], None]
) -> AbstractContextManager[None]:
    """Make the block in which nothing else is timed on this machine."""
    return timing_alone(
        Occupant.of_this_process(_describe_command(task), task.job),
        waits=task.waits,
        on_wait=lambda message: send(Noted(message=message)),
        on_trouble=lambda message: send(Warned(message=message)),
    )


def _lock_in_turn(
    ranks: Ranks,
    names: Sequence[bytes],
    lock: LockMachine,
    send: Callable[[Report], None],
    machine: ExitStack,
) -> None:
    """Lock every machine, for what all of them measure together. Collective.

    One after the other in the order of their names, and by then no rank has a lock: so two jobs
    on the same machines cannot each have what the other one waits for.
    """
    for rank in sorted(range(ranks.size), key=lambda rank: (names[rank], rank)):
        if rank == ranks.rank:
            try:
                machine.enter_context(lock())
            except MachineBusyError as error:  # the others measure with this one all the same
                send(Warned(message=f"the network is measured while {error}"))
        ranks.barrier()


def _describe_command(task: ClusterTask) -> str:
    use_case = "" if task.request is None else f" --use-case {task.request.workload.use_case}"
    hosts = format_count(len(task.nodes), "host")
    return f"ddlplan {task.purpose} --hosts, of {hosts}{use_case}"


def _send_report(report: Report) -> None:
    sys.stdout.buffer.write(report.encode())
    sys.stdout.buffer.flush()


def _exit_on_signal(number: int, _: object) -> NoReturn:
    """Leave in order, so that workers are ended."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    try:
        status = main(Path(sys.argv[1]))
    except SystemExit as ended:
        status = int(ended.code or 0)
    if status:
        os._exit(status)  # not by MPI, which would wait as above
