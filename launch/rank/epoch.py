"""Result of an epoch: the steps of one worker and the validation of all."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from math import nan

from launch.reports import EpochDone, StepDone, StepsFinished, Validated


@dataclass(slots=True)
class _StepSums:
    """Sums over the steps of an epoch."""

    samples: int = 0
    time_s: float = 0.0
    loss: float = 0.0
    """Of each step's mean loss times its samples."""


class EpochStatistics:
    """Sum of the workers' reports until an epoch is complete."""

    def __init__(self, workers: int, global_batch: int) -> None:
        self._workers = workers
        self._global_batch = global_batch
        self._started = time.monotonic()
        self._finished: StepsFinished | None = None
        self._steps: defaultdict[int, _StepSums] = defaultdict(_StepSums)
        self._validated: defaultdict[int, list[Validated]] = defaultdict(list)

    def add_step(self, step: StepDone) -> None:
        sums = self._steps[step.epoch]
        sums.samples += step.samples
        sums.time_s += step.time_s
        sums.loss += step.loss * step.samples

    def add_finish(self, finished: StepsFinished) -> None:
        """Add the work after the last step."""
        self._steps[finished.epoch].time_s += finished.time_s
        self._finished = finished

    def add_validation(self, validated: Validated) -> EpochDone | None:
        """Add one worker's validation; return the epoch once all workers have validated."""
        parts = self._validated[validated.epoch]
        parts.append(validated)
        if len(parts) < self._workers:
            return None
        del self._validated[validated.epoch]
        return self._summarise(self._steps.pop(validated.epoch, _StepSums()), parts)

    def _summarise(self, steps: _StepSums, parts: list[Validated]) -> EpochDone:
        samples = steps.samples
        validated_samples = sum(part.samples for part in parts)
        validated_weight = sum(part.weight for part in parts)
        names = sorted({name for part in parts for name in part.metric_sums})
        finished = self._finished if samples else None
        return EpochDone(
            epoch=parts[0].epoch + 1,
            # A job that resumed after the last step of an epoch has only validated it.
            train_loss=steps.loss / samples if samples else nan,
            validation_loss=sum(part.loss_sum for part in parts) / validated_weight
            if validated_weight
            else None,
            metrics={
                name: sum(part.metric_sums.get(name, 0.0) for part in parts) / validated_samples
                for name in names
            },
            samples=samples,
            train_time_s=steps.time_s,
            validation_time_s=max(part.time_s for part in parts),
            throughput_samples_per_s=samples / steps.time_s if samples else 0.0,
            learning_rates=finished.learning_rates if finished else (),
            global_batch=self._global_batch,
            elapsed_s=time.monotonic() - self._started,
            noise=finished.noise if finished else None,
            noise_obstacle=finished.noise_obstacle if finished else None,
        )
