"""Training listener: turns the reports of a training into the progress of its job."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace

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
        self._progress = TrainingProgress(doing="", epochs=epochs)
        self._last: deque[tuple[int, float]] = deque(maxlen=_LAST_STEPS)

    def __call__(self, report: Report, host: str | None = None, /) -> None:
        self._then(report, host)
        now = self._progress
        match report:
            case Working(what=what) | Noted(message=what):
                now = replace(now, doing=what)
            case DataProgress(what=what, done=done, total=total):
                now = replace(now, doing=f"{what} {done}/{total}")
            case Described(facts=facts):
                now = replace(
                    now,
                    doing="starting the workers",
                    samples=0,
                    samples_in_epoch=facts.train_samples,
                    is_generated=facts.is_generated,
                )
            case StepDone():
                now = self._after_step(report)
            case EpochDone(epoch=epoch):
                now = replace(now, samples=0, epoch=min(epoch + 1, now.epochs))
            case _:
                return
        self._progress = now
        self._job.report(now)

    def _after_step(self, step: StepDone) -> TrainingProgress:
        now = self._progress
        samples = now.samples + step.samples
        is_last = now.samples_in_epoch is not None and samples >= now.samples_in_epoch
        self._last.append((step.samples, step.time_s))
        last_samples, last_s = (sum(part) for part in zip(*self._last, strict=True))
        return replace(
            now,
            doing="validating" if is_last else "training",
            epoch=step.epoch + 1,
            steps=step.step + 1,
            samples=samples,
            loss=step.loss if math.isfinite(step.loss) else None,
            throughput_samples_per_s=last_samples / last_s if last_s else None,
        )
