"""How do trainings share one machine by turns? The workers of all but one stand still.

The speed of a virtual machine changes by some ten percent from one minute to the next. So what is
to be compared is started once, and goes on for a few seconds at a time.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from _block import BenchError

from launch.mpi.job import MpiJob
from launch.workers.reports import JobFailed, StepDone

_LOOK_S = 0.05
_LIMIT_S = 600.0
_LEAST_STEPS = 3


@dataclass(frozen=True, slots=True)
class Training:
    """A job that trains."""

    job: MpiJob
    document: Path
    """What its ranks were given, which no other job has."""

    log: Path
    """Of its mpirun."""

    def steps(self) -> Iterator[StepDone]:
        """Give its steps as they are done, until it ends."""
        while not self.job.is_over:
            if (step := self.next_step(1.0)) is not None:
                yield step

    def next_step(self, timeout_s: float) -> StepDone | None:
        """Give its next step; ``None`` where none is done in that time, or something else is.

        Raises:
            BenchError: It has failed.
        """
        report = self.job.next_report(timeout_s)
        if isinstance(report, JobFailed):
            raise BenchError(f"{report.node}: {report.message}\n{report.log_tail}")
        return report if isinstance(report, StepDone) else None

    def signal_workers(self, number: int) -> None:
        """Send a signal to the processes that compute, and to nothing that speaks for them."""
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if words[:1] != [sys.executable] or str(self.document) not in words:
                continue
            with suppress(psutil.NoSuchProcess):
                # Its own child is the server that starts workers.
                servers = process.children()
                for worker in (child for server in servers for child in server.children(True)):
                    worker.send_signal(number)


class Turn:
    """Trainings that go on at the same time, and stand still when it is not their turn.

    Args:
        trainings: Just started.
        warm_up: Steps of each that are not timed.
    """

    def __init__(self, trainings: Sequence[Training], *, warm_up: int) -> None:
        self._trainings = trainings
        self._take(0.0, warm_up)

    def take(self, seconds: float) -> list[list[float]]:
        """Go on for so long, or for a few steps; give the times of the steps of each training."""
        for training in self._trainings:
            training.signal_workers(signal.SIGCONT)
        # The step that was interrupted counts for nothing.
        return [times[1:] for times in self._take(seconds, 1 + _LEAST_STEPS)]

    def close(self) -> None:
        """Let them go on, so that they can end."""
        for training in self._trainings:
            training.signal_workers(signal.SIGCONT)

    def _take(self, seconds: float, least: int) -> list[list[float]]:
        began_s = time.monotonic()
        times: list[list[float]] = [[] for _ in self._trainings]
        while time.monotonic() < began_s + seconds or min(map(len, times)) < least:
            if time.monotonic() > began_s + _LIMIT_S:
                raise BenchError(f"fewer than {least} steps in {_LIMIT_S:g} s")
            for training, of in zip(self._trainings, times, strict=True):
                if training.job.is_over:
                    raise BenchError(training.log.read_text()[-2000:])
                if (step := training.next_step(_LOOK_S)) is not None:
                    of.append(step.time_s)
        for training in self._trainings:
            training.signal_workers(signal.SIGSTOP)
        return times
