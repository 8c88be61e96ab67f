"""Training listener: turns the reports of a training into the progress of its job."""

from __future__ import annotations

import math
from collections import deque

from launch.reports import DataProgress, Described, EpochDone, Noted, Report, StepDone, Working
from planner.records.progress import TrainingProgress
from planner.supervision.own_job import OwnJob
from planner.trials.reports import Listener

_LAST_STEPS = 20
"""Steps whose throughput is told."""


class TrainingListener:
    """Passes reports on, and keeps the row of the training up to date."""

    def __init__(self, job: OwnJob, then: Listener, *, epochs: int) -> None:
        self._job = job
        self._then = then
        self._epochs = epochs
        self._doing = ""
        self._epoch = 1
        self._steps = self._samples = 0
        self._samples_in_epoch: int | None = None
        self._is_generated = False
        self._loss: float | None = None
        self._last: deque[tuple[int, float]] = deque(maxlen=_LAST_STEPS)

    def __call__(self, report: Report, host: str | None = None, /) -> None:
        self._then(report, host)
        match report:
            case Working(what=what) | Noted(message=what):
                self._doing = what
            case DataProgress(what=what, done=done, total=total):
                self._doing = f"{what} {done}/{total}"
            case Described(facts=facts):
                self._doing, self._samples = "starting the workers", 0
                self._samples_in_epoch = facts.train_samples
                self._is_generated = facts.is_generated
            case StepDone():
                self._step(report)
            case EpochDone():
                self._samples = 0
                self._epoch = min(report.epoch + 1, self._epochs)
            case _:
                return
        self._job.report(self._progress())

    def _step(self, step: StepDone) -> None:
        self._epoch, self._steps = step.epoch + 1, self._steps + 1
        self._samples += step.samples
        self._last.append((step.samples, step.time_s))
        self._loss = step.loss if math.isfinite(step.loss) else None
        is_last = self._samples_in_epoch is not None and self._samples >= self._samples_in_epoch
        self._doing = "validating" if is_last else "training"

    def _progress(self) -> TrainingProgress:
        samples, time_s = (
            (sum(part) for part in zip(*self._last, strict=True)) if self._last else (0, 0.0)
        )
        return TrainingProgress(
            doing=self._doing,
            epochs=self._epochs,
            epoch=self._epoch,
            steps=self._steps,
            samples=self._samples,
            samples_in_epoch=self._samples_in_epoch,
            loss=self._loss,
            throughput_samples_per_s=samples / time_s if time_s else None,
            is_generated=self._is_generated,
        )
