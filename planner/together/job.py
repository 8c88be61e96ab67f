"""How is a job of the planner's own run on the hosts, and what has ended it?"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from launch.hosts.checked import HostsChecked
from launch.hosts.handover import hand_over
from launch.hosts.line import Host
from launch.hosts.ssh import write_ssh_config
from launch.mpi.command import mpi_command, uses_srun
from launch.mpi.dead_rank import DeadRank, find_dead_rank
from launch.mpi.job import MpiJob
from launch.mpi.settings import MpiSettings
from launch.mpi.world import MPI_PORTS
from launch.patience import Patience
from launch.workers.reports import Alive, Report
from planner.reach import Reach
from planner.together.reports import FromNode, JobRefused
from planner.together.task import TogetherTask

_PROGRAM = "planner.together.rank"
_TAIL_LINES = 20
_LOOK_S = 1.0
_START_LIMIT_S = 180.0
"""Until all ranks are there; the hosts were found well, but a busy one may take its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """How a job ended."""

    code: int
    """Exit status of mpirun, negative for a signal; never 0 where there is a refusal."""

    spoke: bool
    """Whether any node had said anything."""

    refusal: str | None
    """Why it could not begin, where that is known: its ranks found it, or there were none."""

    lost_host: str | None
    """The host that stopped answering, as mpirun knows it."""

    dead_rank: DeadRank | None
    """The first rank that a signal ended."""

    log_tail: str
    """Last lines of what mpirun and the ranks wrote to stderr."""


def run_together(
    task: TogetherTask,
    hosts: Sequence[Host],
    checked: HostsChecked,
    reach: Reach,
    on_report: Callable[[int, Report], None],
) -> JobEnd:
    """Run a job to its end. Leaving by an exception ends it too.

    Args:
        task: What the nodes do.
        hosts: By rank, as `HostsChecked.ranked` gives them.
        checked: What the checks of the hosts showed.
        reach: How they are reached.
        on_report: Takes what the nodes say, with their rank.

    Raises:
        LaunchError: There is no MPI that can do it.
        HostFileError: The ssh configuration cannot be used.
        HostUnreachableError: The first host does not take the task.
    """
    with tempfile.TemporaryDirectory(prefix="ddlplan-") as name:  # for this user alone
        folder = Path(name)
        log, ssh_config = folder / "log", folder / "ssh_config"
        write_ssh_config(hosts, ssh_config, include=reach.ssh_config)
        settings = MpiSettings(
            mpirun=reach.mpirun,
            ssh_config=ssh_config,
            networks=checked.networks,
            allow_root=reach.allow_root,
        )
        starts_here = hosts[0].name == checked.this_machine
        by_srun = uses_srun(settings, os.environ)
        if starts_here:
            task_file = str(folder / "task")
            Path(task_file).write_bytes(task.encode())
        else:
            reached_by = None if by_srun else ssh_config
            task_file = hand_over(hosts[0], task.encode(), ssh_config=reached_by)
        program = [_PROGRAM, task_file]
        command = mpi_command(hosts, program, settings, os.environ, starts_here=starts_here)
        heard = _Heard(on_report)
        with MpiJob(command, log) as job:
            _listen(job, heard)
            code, lost_host = job.wait(), job.find_lost_host()
        said = log.read_text(errors="replace").replace("\0", "")  # with which its words end
        return JobEnd(
            code=code or int(heard.refusal is not None),
            spoke=heard.spoke,
            refusal=heard.refusal,
            lost_host=lost_host,
            dead_rank=find_dead_rank(said),
            log_tail="\n".join(said.splitlines()[-_TAIL_LINES:]),
        )


@dataclass(slots=True)
class _Heard:
    """What the ranks of a job have said so far."""

    on_report: Callable[[int, Report], None]
    has_begun: bool = False
    spoke: bool = False
    refusal: str | None = None

    def add(self, report: Report) -> None:
        match report:
            case Alive():
                self.has_begun = True
            case FromNode(rank=rank):
                self.has_begun = self.spoke = True
                self.on_report(rank, report.report)
            case JobRefused(message=message):
                self.refusal = self.refusal or message


def _listen(job: MpiJob, heard: _Heard) -> None:
    """Hear a job to its end. One whose ranks do not come together is ended: they would wait on."""
    patience = Patience()
    while not job.is_over:
        report = job.next_report(_LOOK_S)
        waited_s = patience.look()
        if report is not None:
            heard.add(report)
        elif not heard.has_begun and waited_s > _START_LIMIT_S:
            late = f"MPI has not joined all ranks within {_START_LIMIT_S:.0f} s"
            heard.refusal = heard.refusal or f"{late}: {MPI_PORTS}"
            job.stop()
            return
