"""When is a step over? When its loss is known: at once on a CPU, a step later on a GPU."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import SupportsFloat

from launch.training.loss import LaterLoss
from launch.workers.reports import Compiled, Reporter, StepDone


@dataclass(frozen=True, slots=True, kw_only=True)
class _Launched:
    """A step whose loss may still be computed."""

    epoch: int
    samples: int
    loss: SupportsFloat
    input_s: float


class StepReports:
    """Times the steps of one worker and tells of each.

    A GPU computes while its worker prepares what comes next. A step that is waited for only when
    the next one has been launched leaves no gap between them; and no more than these two wait for
    the GPU, so that their batches do not fill its memory.

    Args:
        reporter: Is told, ``None`` for a worker whose steps another one reports.
        is_compiled: Whether the first step compiles.
    """

    def __init__(self, reporter: Reporter | None, *, is_compiled: bool) -> None:
        self._reporter = reporter
        self._is_compiled = is_compiled
        self._waiting: _Launched | None = None
        self._steps = 0
        self._first_step_s = 0.0
        self._started = 0.0

    def start(self) -> None:
        """Begin to time the next step now."""
        self._started = time.perf_counter()

    def is_computing(self) -> bool:
        """Whether the step before is still computed."""
        waiting = self._waiting
        return (
            waiting is not None
            and isinstance(waiting.loss, LaterLoss)
            and not waiting.loss.is_known()
        )

    def add(self, *, epoch: int, samples: int, loss: SupportsFloat, input_s: float) -> None:
        """Take note of a step that was launched; wait for the one before, or for a CPU's."""
        self.finish()
        self._waiting = _Launched(epoch=epoch, samples=samples, loss=loss, input_s=input_s)
        if not isinstance(loss, LaterLoss):
            self.finish()

    def finish(self) -> None:
        """Wait for the last step that was launched, and tell of it."""
        if (done := self._waiting) is None:
            return
        self._waiting = None
        loss = float(done.loss)
        ended = time.perf_counter()
        time_s, self._started = ended - self._started, ended
        if self._reporter is not None:
            self._reporter.send(
                StepDone(
                    step=self._steps,
                    epoch=done.epoch,
                    time_s=time_s,
                    samples=done.samples,
                    loss=loss,
                    input_s=done.input_s,
                )
            )
            self._report_compiler(time_s, self._reporter)
        self._steps += 1

    def _report_compiler(self, step_s: float, reporter: Reporter) -> None:
        """Tell what the compiler took, once there is a step without it."""
        if self._steps == 0:
            self._first_step_s = step_s
        if self._is_compiled and self._steps == 1:
            reporter.send(Compiled(time_s=max(0.0, self._first_step_s - step_s)))
