"""Result of an epoch: the steps of one worker and the validation of all."""

from __future__ import annotations

import time
from collections import defaultdict
from math import nan

from launch.reports import EpochDone, StepDone, StepsFinished, Validated


class EpochStatistics:
    """Sum of the workers' reports until an epoch is complete."""

    def __init__(self, workers: int, global_batch: int) -> None:
        self._workers = workers
        self._global_batch = global_batch
        self._started = time.monotonic()
        self._finished: StepsFinished | None = None
        self._steps: defaultdict[int, list[StepDone]] = defaultdict(list)
        self._finish_s: defaultdict[int, float] = defaultdict(float)
        self._validated: defaultdict[int, list[Validated]] = defaultdict(list)

    def add_step(self, step: StepDone) -> None:
        """Add a step."""
        self._steps[step.epoch].append(step)

    def add_finish(self, finished: StepsFinished) -> None:
        """Add the work after the last step."""
        self._finish_s[finished.epoch] += finished.time_s
        self._finished = finished

    def add_validation(self, validated: Validated) -> EpochDone | None:
        """Add one worker's validation; return the epoch once all workers have validated."""
        parts = self._validated[validated.epoch]
        parts.append(validated)
        if len(parts) < self._workers:
            return None
        return self._summarise(self._steps.pop(validated.epoch, []), parts)

    def _summarise(self, steps: list[StepDone], parts: list[Validated]) -> EpochDone:
        samples = sum(step.samples for step in steps)
        train_time_s = sum(step.time_s for step in steps)
        train_time_s += self._finish_s.pop(parts[0].epoch, 0.0)
        validated_samples = sum(part.samples for part in parts)
        validated_weight = sum(part.weight for part in parts)
        names = sorted({name for part in parts for name in part.metric_sums})
        finished = self._finished if samples else None
        return EpochDone(
            epoch=parts[0].epoch + 1,
            # A job that resumed after the last step of an epoch has only validated it.
            train_loss=sum(step.loss * step.samples for step in steps) / samples
            if samples
            else nan,
            validation_loss=sum(part.loss_sum for part in parts) / validated_weight
            if validated_weight
            else None,
            metrics={
                name: sum(part.metric_sums.get(name, 0.0) for part in parts) / validated_samples
                for name in names
            },
            samples=samples,
            train_time_s=train_time_s,
            validation_time_s=max(part.time_s for part in parts),
            throughput_samples_per_s=samples / train_time_s if samples else 0.0,
            learning_rates=finished.learning_rates if finished else (),
            global_batch=self._global_batch,
            elapsed_s=time.monotonic() - self._started,
            noise=finished.noise if finished else None,
            noise_obstacle=finished.noise_obstacle if finished else None,
        )
