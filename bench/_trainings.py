"""Trainings without end, ours and those of DDP, which can be stopped for a while."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from _block import CASES, BenchError

from launch.hosts.host_line import Host
from launch.job import Job, NodeJob
from launch.mpi.command import mpi_command
from launch.mpi.job import MpiJob
from launch.mpi.settings import MpiSettings
from launch.reports import JobFailed, StepDone
from launch.workload import Workload
from probes import codec

ALEXNET = f"{CASES}:AlexNetInMemory"
_ENDLESS = 100_000
_LIMIT_S = 600.0
_TAIL = 2000


class JobTraining:
    """A job of ours.

    Args:
        job: Just started.
        document: What its ranks were given, which no other job has.
        log: Of its mpirun.
    """

    def __init__(self, job: MpiJob, document: Path, log: Path) -> None:
        self._job = job
        self._document = document
        self._log = log

    def next_step(self, timeout_s: float) -> StepDone | None:
        """Give its next step; ``None`` where none ends within the timeout."""
        if self._job.is_over:
            raise BenchError(self._log.read_text()[-_TAIL:])
        report = self._job.next_report(timeout_s)
        if isinstance(report, JobFailed):
            raise BenchError(f"{report.node}: {report.message}\n{report.log_tail}")
        return report if isinstance(report, StepDone) else None

    def next_step_s(self, timeout_s: float) -> float | None:
        """Give the time of its next step; ``None`` where none ends within the timeout."""
        step = self.next_step(timeout_s)
        return None if step is None else step.time_s

    def signal_workers(self, number: int) -> None:
        """Send a signal to the workers, and to nothing that speaks for them."""
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if words[:1] != [sys.executable] or str(self._document) not in words:
                continue
            with suppress(psutil.NoSuchProcess):
                # Its own child is the server that starts workers.
                servers = process.children()
                for worker in (child for server in servers for child in server.children(True)):
                    worker.send_signal(number)


def own_folder() -> tempfile.TemporaryDirectory[str]:
    """Give a folder that all hosts see, for as long as a ``with`` block."""
    return tempfile.TemporaryDirectory(prefix="ddlplan-bench-")


@contextmanager
def endless_training(
    nodes: Sequence[NodeJob], command: Callable[[str], list[str]], *, use_case: str = ALEXNET
) -> Iterator[JobTraining]:
    """Start a job of ours that trains without end.

    Args:
        nodes: Its hosts, with their plans.
        command: Gives the command line of mpirun for ranks with the job's file.
        use_case: AlexNet in memory, or a built-in one.
    """
    with own_folder() as name:
        folder = Path(name)
        samples = _ENDLESS * sum(node.plan.node_batch for node in nodes)
        (folder / "samples").write_text(str(samples))
        job = Job(
            workload=Workload(use_case=use_case, data=name if use_case == ALEXNET else None),
            nodes=tuple(nodes),
            run_directory=name,
            epochs=_ENDLESS,
            keep_shares=True,
            hang_timeout_s=_LIMIT_S,  # jobs stand still when it is not their turn
        )
        document, log = folder / "job.json", folder / "mpirun.log"
        document.write_bytes(codec.encode(job))
        with MpiJob(command(str(document)), log) as running:
            yield JobTraining(running, document, log)


def rank_path() -> str:
    """Give PYTHONPATH of ranks: programs of this folder are found, and what the user has there."""
    here = Path(__file__).parent
    paths = [str(here), str(here.parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return os.pathsep.join(filter(None, paths))


def local_command(*program: str) -> list[str]:
    """Give the command that runs a module as the one rank of a job on this machine."""
    settings = MpiSettings(allow_root=os.geteuid() == 0)
    hosts = (Host(name="localhost", line=1),)
    return mpi_command(hosts, program, settings, os.environ, starts_here=True)


class DdpTraining:
    """torch's DDP, one process per host.

    Args:
        processes: Of its hosts.
        said: What the first of them writes, a line for each step.
        log: What all of them write when something is wrong.
    """

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]], said: Path, log: Path) -> None:
        self._processes = processes
        self._said = said
        self._log = log
        self._read = 0

    def next_step_s(self, timeout_s: float) -> float | None:
        """Give the time of its next step; ``None`` where none ends within the timeout."""
        if any(process.poll() is not None for process in self._processes):
            raise BenchError(self._log.read_text()[-_TAIL:])
        *lines, _ = self._said.read_text().split("\n")
        if len(lines) == self._read:
            time.sleep(timeout_s)
            return None
        self._read += 1
        return float(lines[self._read - 1])

    def signal_workers(self, number: int) -> None:
        """Send a signal to its processes."""
        for process in self._processes:
            process.send_signal(number)
