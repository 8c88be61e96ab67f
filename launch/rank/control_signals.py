"""Control signals of a running job: checkpoint, stop, end. Rank 0 receives them."""

from __future__ import annotations

import signal

from launch.gradient_sync.node_channel.step_server import StepServer
from launch.system.process_end import read_parent_name

CHECKPOINT = signal.SIGUSR1
"""Write a checkpoint after this step, and continue."""

STOP = signal.SIGUSR2
"""Write a checkpoint after this step, in a job that writes any, and end."""


class ControlSignals:
    """Signals that were received: they take effect after a step, and wait for one."""

    def __init__(self) -> None:
        self._steps: StepServer | None = None
        self._pending: list[int] = []
        self.end_signal: int | None = None
        """Signal that has requested the end; perhaps not from who started the job."""

    def install_handlers(self, *, acts_on_them: bool) -> None:
        """Handle signals from now on, which would else end this process.

        SIGTERM only under Slurm, which has no other signal for an end. mpirun sends it where the
        job has failed or is to end at once.

        Args:
            acts_on_them: Whether this rank acts on them. All ranks get them, but not in
                the same step.
        """
        numbers = [CHECKPOINT, STOP]
        if "slurmstepd" in read_parent_name():
            numbers.append(signal.SIGTERM)
        for number in numbers:
            signal.signal(number, self._handle if acts_on_them else _ignore)

    def attach(self, steps: StepServer | None) -> None:
        """Set the server that directs the workers now; ``None`` while there is none."""
        self._steps = steps
        pending, self._pending = self._pending, []
        for number in pending:
            self._handle(number)

    def _handle(self, number: int, _: object = None) -> None:
        if number != CHECKPOINT:
            self.end_signal = number
        if self._steps is None:
            self._pending.append(number)
        else:
            self._steps.set_control_flags(checkpoint=True, stop=number != CHECKPOINT)


def _ignore(_: int, __: object) -> None:
    return
