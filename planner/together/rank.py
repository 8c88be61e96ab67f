"""What does an MPI rank of the planner do? Its node's part of what the nodes find out together.

``mpirun ... python -m mpi4py -m planner.together.rank TASK``: a file on the host of rank 0. Each
rank works by itself; what it has to say goes to rank 0, whose stdout has a JSON document a line.
When all have done their parts they measure the network, and nothing else runs meanwhile.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import NoReturn

# A rank that is killed breaks its connections, and Open MPI ends the ranks at their other ends: in
# milliseconds, so that mpirun hears of these first and never says which one was killed.
os.environ.setdefault("OMPI_MCA_mpi_abort_delay", "2")

from mpi4py import MPI

from launch.mpi.ranks import Ranks
from launch.process_end import end_with_parent
from launch.workers.reports import Alive, Report
from planner.exit_codes import BUG, judge
from planner.together.coordinator import Coordinator
from planner.together.network import measure_network
from planner.together.node_search import search_here
from planner.together.post import Post
from planner.together.reports import (
    Confirm,
    Finish,
    FromNode,
    JobRefused,
    Lead,
    NodeDone,
    NodeFailed,
    NodeProbed,
)
from planner.together.task import Purpose, TogetherTask
from probes.node import probe


def main(task_file: Path) -> int:
    """Run this rank's part; give the exit status."""
    end_with_parent(os.getppid())  # mpirun's daemon: what it can no longer end must not go on
    signal.signal(signal.SIGTERM, _end)
    comm = MPI.COMM_WORLD
    ranks = Ranks(comm)
    task = TogetherTask.decode(ranks.broadcast(_take(task_file) if comm.rank == 0 else b""))
    if comm.size != len(task.nodes):
        hosts = len(task.nodes)
        message = f"MPI started {comm.size} ranks for {hosts} hosts: is this mpirun ours?"
        _say(JobRefused(message=message))
        return 1
    if ranks.gather(b"") is not None:  # every rank has reached this one
        _say(Alive())
    sizes = _work(comm, task)
    if not task.is_quick:
        measured = measure_network(comm, sizes)
        if comm.rank == 0:
            _say(FromNode.of(0, measured))
    return 0


def _take(task_file: Path) -> bytes:
    """Read the task, which has been put there for this job alone."""
    document = task_file.read_bytes()
    task_file.unlink()
    return document


def _work(comm: MPI.Comm, task: TogetherTask) -> list[int]:
    """Do this node's part, and wait for the others; give the sizes of the all-reduces to time."""
    orders: SimpleQueue[Report] = SimpleQueue()
    post: Post

    def tell(rank: int, report: Report) -> None:
        post.send(rank, report.encode())

    leaders = [node.leader for node in task.nodes]
    coordinator = Coordinator(leaders, task.message_bytes, _say, tell)

    def hear(sender: int, document: bytes) -> None:
        report = Report.decode(document)
        if isinstance(report, Confirm | Lead | Finish):
            orders.put(report)
        else:
            coordinator.hear(sender, report)

    with Post(comm, hear) as post:
        _do_part(task, comm.rank, orders, lambda report: tell(0, report))
        while not isinstance(order := orders.get(), Finish):
            pass  # told to search in the place of another, when it had given up itself
    return list(order.message_bytes)


def _do_part(
    task: TogetherTask, rank: int, orders: SimpleQueue[Report], tell: Callable[[Report], None]
) -> None:
    """Do what this node has to do; a failure of its own is none of the job."""
    node = task.nodes[rank]
    try:
        match task.purpose:
            case Purpose.PROBE:
                hardware = probe(quick=task.is_quick)
                tell(NodeProbed(hardware=hardware.to_json(), is_new=True))
            case Purpose.TUNE:
                assert task.request is not None
                leads = node.leader == rank
                search_here(node, task.request, task.software, orders, tell, leads=leads)
    except Exception as error:  # noqa: BLE001 - the other nodes go on, whatever happened here
        tell(_failure(error))
    else:
        tell(NodeDone())


def _failure(error: Exception) -> NodeFailed:
    verdict = judge(error)
    if verdict is None:
        traceback.print_exc()
    code, word = verdict or (BUG, "bug")
    message = " ".join(str(error).split()) or type(error).__name__
    return NodeFailed(code=code, error=word, message=message)


def _say(report: Report) -> None:
    sys.stdout.buffer.write(report.encode())
    sys.stdout.buffer.flush()


def _end(number: int, _: object) -> NoReturn:
    """Leave in order, so that workers are ended."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    try:
        status = main(Path(sys.argv[1]))
    except SystemExit as ended:
        status = int(ended.code or 0)
    if status:
        os._exit(status)  # not by MPI, which would wait as above
