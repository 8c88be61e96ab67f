"""What is wished of a running job? Whoever started it says so by signals, which rank 0 hears."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from launch.exchange.server import StepServer

CHECKPOINT = signal.SIGUSR1
"""Write a checkpoint after this step, and go on."""

STOP = signal.SIGUSR2
"""Write a checkpoint after this step where they are kept, and end."""


class Wishes:
    """Signals that have come, until there are steps after which they can be granted."""

    def __init__(self) -> None:
        self._steps: StepServer | None = None
        self._waiting: list[int] = []
        self.end_signal: int | None = None
        """By which someone else than who started the job has asked for its end."""

    def listen(self, *, is_heard: bool) -> None:
        """Take signals from now on, which would else end this process.

        Slurm has no other word for an end than SIGTERM. From mpirun it comes where the job has
        failed already, or shall be over at once: then nothing is to be waited for.

        Args:
            is_heard: Whether this rank does something about them. All ranks get them, but not in
                the same step.
        """
        numbers = [CHECKPOINT, STOP]
        if _is_started_by_slurm():
            numbers.append(signal.SIGTERM)
        for number in numbers:
            signal.signal(number, self._take if is_heard else _leave_aside)

    def attach(self, steps: StepServer | None) -> None:
        """Say who answers the workers now; nobody while it is ``None``."""
        self._steps = steps
        waiting, self._waiting = self._waiting, []
        for number in waiting:
            self._take(number)

    def _take(self, number: int, _: object = None) -> None:
        if number not in (CHECKPOINT, STOP):
            self.end_signal = number
        if self._steps is None:
            self._waiting.append(number)
        else:
            self._steps.wish(checkpoint=True, stop=number != CHECKPOINT)


def _leave_aside(_: int, __: object) -> None:
    return


def _is_started_by_slurm() -> bool:
    try:
        return "slurmstepd" in Path(f"/proc/{os.getppid()}/comm").read_text()
    except OSError:
        return False
