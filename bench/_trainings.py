"""Trainings on hosts without end, ours and those of DDP, which can be stopped for a while."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil
from _block import BenchError

from launch.mpi.job import MpiJob
from launch.reports import JobFailed, StepDone

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

    def next_step_s(self, timeout_s: float) -> float | None:
        """Give the time of its next step; ``None`` where none ends within the timeout."""
        if self._job.is_over:
            raise BenchError(self._log.read_text()[-_TAIL:])
        report = self._job.next_report(timeout_s)
        if isinstance(report, JobFailed):
            raise BenchError(f"{report.node}: {report.message}\n{report.log_tail}")
        return report.time_s if isinstance(report, StepDone) else None

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
