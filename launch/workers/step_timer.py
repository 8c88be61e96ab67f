"""Timer of steps: a step ends when its loss is known, on a GPU when its update is made."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, SupportsFloat

import torch

from launch.noise_scale.estimate import NoiseScale
from launch.reports import Compiled, Reporter, StepDone
from launch.training.loss import PendingLoss
from launch.workers.finiteness import check_finite_loss


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedStep:
    """A step that was launched, whose loss may still be computed."""

    epoch: int
    number: int
    """From 1, since the training began."""
    samples: int
    loss: SupportsFloat
    input_s: float
    read_ahead: int = 0
    noise: NoiseScale | None = None


class StepTimer:
    """Times the steps of one worker and reports each.

    A GPU computes while its worker prepares what comes next. A step that is waited for only when
    the next one has been launched leaves no gap between them; and no more than these two wait for
    the GPU, so that their batches do not fill its memory.

    Args:
        reporter: Receives the steps, ``None`` for a worker whose steps another one reports.
        is_compiled: Whether the first step compiles.
        allow_nan: Whether the loss may be NaN or infinite.
    """

    def __init__(
        self, reporter: Reporter | None, *, is_compiled: bool, allow_nan: bool = True
    ) -> None:
        self._reporter = reporter
        self._allow_nan = allow_nan
        self._is_compiled = is_compiled
        self._pending: LaunchedStep | None = None
        self._updated: Any = None
        """Event behind the update of the pending step, where a GPU makes it."""
        self._steps = 0
        self._first_step_s = 0.0
        self._started = 0.0

    def start(self) -> None:
        """Start to time the next step."""
        self._started = time.perf_counter()

    def is_computing(self) -> bool:
        """Whether the step before is still computed, or its update made."""
        pending = self._pending
        if pending is None or not isinstance(pending.loss, PendingLoss):
            return False
        is_updated = self._updated is None or self._updated.query()
        return not (is_updated and pending.loss.is_known())

    def add(self, step: LaunchedStep) -> None:
        """Add a step that was launched; wait for the one before, or for a CPU's.

        Raises:
            NotFiniteError: The loss of the step that was waited for is NaN or infinite.
        """
        self._end_step()
        self._pending = step
        if isinstance(step.loss, PendingLoss):
            self._updated = _record_event()
        else:
            self._end_step()

    def finish(self) -> None:
        """Wait for the last step that was launched, its update included, and report it.

        Raises:
            NotFiniteError: Its loss is NaN or infinite.
        """
        self._end_step(is_last=True)

    def _end_step(self, *, is_last: bool = False) -> None:
        if (done := self._pending) is None:
            return
        self._pending = None
        # The update comes after the loss, and in the time of its own step. As the first of a turn's
        # steps may not count, the others would have one update more than there are of them.
        if self._updated is not None:
            self._updated.synchronize()
            self._updated = None
        loss = float(done.loss)
        ended = time.perf_counter()
        time_s, self._started = ended - self._started, ended
        if self._reporter is not None:
            # It takes a while, in which a GPU with short steps would wait for the one after next.
            reads_memory = is_last or not isinstance(done.loss, PendingLoss)
            self._reporter.send(
                StepDone(
                    step=self._steps,
                    epoch=done.epoch,
                    time_s=time_s,
                    samples=done.samples,
                    loss=loss,
                    input_s=done.input_s,
                    read_ahead=done.read_ahead,
                    noise=done.noise,
                    peak_device_memory_bytes=_peak_device_memory_bytes() if reads_memory else None,
                )
            )
            self._report_compiler(time_s, self._reporter)
        self._steps += 1
        if not self._allow_nan:
            where = f"of step {done.number} (epoch {done.epoch + 1})"
            check_finite_loss(loss, f"the training loss {where}")

    def _report_compiler(self, step_s: float, reporter: Reporter) -> None:
        """Report the compiler's time, once there is a step without it."""
        if self._steps == 0:
            self._first_step_s = step_s
        if self._is_compiled and self._steps == 1:
            reporter.send(Compiled(time_s=max(0.0, self._first_step_s - step_s)))


def _record_event() -> Any:
    """Record an event behind what the GPU was given so far; ``None`` without a GPU."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    # Waited for without burning a core.
    event: Any = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def _peak_device_memory_bytes() -> int | None:
    """Give the most memory that PyTorch has held of this process's GPU; ``None`` without one."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    # As `torch.cuda.max_memory_reserved` does, which sorts some hundred figures for it.
    peak: int = torch.cuda.memory_stats_as_nested_dict()["reserved_bytes"]["all"]["peak"]
    return peak
