"""Short training: a real one with the use case's own batch, which shows its gradient noise scale.

Each step is measured, and the batch is cut into micro-batches so that there are parts to compare.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from launch.case_facts import CaseFacts
from launch.errors import UseCaseError
from launch.noise_scale.estimate import NoiseScale
from launch.plan import Plan
from launch.rank.epoch import EpochStatistics
from launch.reports import EpochDone, Noted, Report, StepDone, StepsFinished, Validated, Warned
from launch.strategies._gpus import usable_gpus
from planner.errors import NoPlanError
from planner.plans.objective import TIME_TO_LOSS, Objective, describe_objective
from planner.quantities import format_count
from planner.trials.reports import Listener
from probes.hardware import Hardware

BUDGET_SHARE, LARGEST_BUDGET_SHARE = 0.25, 0.5
"""Part of a search's budget that it takes at most, and while the scale is not clear."""

_PARTS = 4
_LEAST_STEPS = 60
_NARROW = 0.25
"""Half width of the interval / scale from which on more steps are not worth their time, once all
samples were seen."""

_LOSS_STEPS = 20
"""Last steps whose mean loss is told."""

TrainShortly = Callable[[Plan], Iterator[Report | None]]
"""Trains with a plan, every step measured: gives its reports, ``None`` once a second at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a training is to reach: a validation loss, or an accuracy."""

    loss: float | None = None
    accuracy: float | None = None

    def __str__(self) -> str:
        if self.loss is not None:
            return f"validation loss {self.loss:g}"
        return f"accuracy {self.accuracy:g}"

    def value(self, epoch: EpochDone) -> float | None:
        """Give how far an epoch is above the target; at most 0 where it has reached it.

        Raises:
            UseCaseError: The use case does not tell its accuracy.
        """
        if self.loss is not None:
            loss = epoch.validation_loss
            return None if loss is None else loss - self.loss
        if self.accuracy is None:
            return None
        if "accuracy" not in epoch.metrics:
            raise UseCaseError(
                f"--target-accuracy {self.accuracy:g} and metrics() without accuracy: use --target"
            )
        return self.accuracy - epoch.metrics["accuracy"]


def measuring_plan(facts: CaseFacts, cores: int) -> Plan:
    """Give the plan of the short training: all cores, no GPU, and parts to compare."""
    batch = facts.default_batch
    return Plan(
        strategy="threads" if cores > 1 else "sequential",
        node_batch=batch,
        threads_per_process=cores,
        micro_batches=min(_PARTS, batch),
    )


def measure_objective(
    train: TrainShortly,
    facts: CaseFacts,
    node: Hardware,
    listener: Listener,
    *,
    budget_s: float,
    target: Target,
    clock: Callable[[], float] = time.monotonic,
) -> Objective:
    """Train until the noise scale is known and the target reached, or its part of the budget spent.

    Raises:
        NoPlanError: The scale is not known after that time.
        UseCaseError: The target is none that the use case tells of.
    """
    if facts.default_batch < 2:
        raise NoPlanError(
            f"default_batch={facts.default_batch} and --objective {TIME_TO_LOSS}: a batch of one "
            "sample has no parts whose gradients could be compared"
        )
    if usable_gpus(node):
        # The scale is one of the model and its data: where it is measured makes no difference.
        line = (
            "the gradient noise scale is measured on the CPU, also for plans on GPUs: where a step "
            "takes long there, raise --budget, of which it may take half"
        )
        listener(Warned(message=line))
    course = _Course(facts.default_batch, target)
    began = clock()
    for report in train(measuring_plan(facts, node.cpu.usable_cores)):
        if report is not None:
            course.add(report)
        share = BUDGET_SHARE if course.is_clear else LARGEST_BUDGET_SHARE
        if clock() - began >= share * budget_s or course.is_known:
            break
    noise = course.noise
    if noise is None or not noise.scale or noise.low is None or noise.high is None:
        why = "its mean gradient is not clearly above its noise" if noise else "none is measured"
        steps = format_count(course.steps, "step")
        raise NoPlanError(
            f"the gradient noise scale is not known after {steps}, {why}: raise --budget, or leave "
            "out --objective"
        )
    objective = Objective(
        name=TIME_TO_LOSS,
        noise_scale=noise.scale,
        noise_low=noise.low,
        noise_high=noise.high,
        base_batch=facts.default_batch,
        steps=course.steps,
        train_loss=course.loss,
        caveat=noise.caveat,
        target=str(target) if target != Target() else None,
        target_samples=course.target_samples,
    )
    listener(Noted(message=describe_objective(objective)))
    return objective


class _Course:
    """What a short training has shown so far."""

    def __init__(self, batch: int, target: Target) -> None:
        self._target = target
        self._has_target = target != Target()
        self._statistics = EpochStatistics(1, batch)
        self._last_losses: deque[float] = deque(maxlen=_LOSS_STEPS)
        self._samples = 0
        self._epochs = 0
        self._before: tuple[int, float] | None = None
        """Samples and distance from the target at the end of the last epoch."""
        self.steps = 0
        self.noise: NoiseScale | None = None
        self.target_samples: float | None = None

    @property
    def loss(self) -> float | None:
        """Mean loss of the last steps; ``None`` where it is not finite."""
        last = self._last_losses
        mean = sum(last) / len(last) if last else math.nan
        return mean if math.isfinite(mean) else None

    @property
    def is_clear(self) -> bool:
        """Whether there is a scale at all."""
        return self.noise is not None and bool(self.noise.scale)

    @property
    def is_known(self) -> bool:
        """Whether more steps are not worth their time."""
        if self._has_target:
            is_reached = self.target_samples is not None
            return is_reached and self.is_clear and self.steps >= _LEAST_STEPS
        noise = self.noise
        if noise is None or not noise.scale or noise.low is None or noise.high is None:
            return False
        is_narrow = noise.high - noise.low <= 2 * _NARROW * noise.scale
        return self._epochs > 0 and self.steps >= _LEAST_STEPS and is_narrow

    def add(self, report: Report) -> None:
        """Take a report of the training."""
        match report:
            case StepDone():
                self.steps += 1
                self._samples += report.samples
                self._last_losses.append(report.loss)
                self.noise = report.noise or self.noise
                self._statistics.add_step(report)
            case StepsFinished():
                self._statistics.add_finish(report)
            case Validated():
                if (epoch := self._statistics.add_validation(report)) is not None:
                    self._epochs += 1
                    self._look_for_target(epoch)

    def _look_for_target(self, epoch: EpochDone) -> None:
        distance = self._target.value(epoch)
        # An accuracy may be no number, as that of a class without samples.
        if distance is None or math.isnan(distance) or self.target_samples is not None:
            return
        if distance > 0:
            self._before = (self._samples, distance)
        elif self._before is None:  # somewhere in the first epoch: nobody knows where
            self.target_samples = float(self._samples)
        else:
            samples, above = self._before
            part = above / (above - distance)
            self.target_samples = samples + part * (self._samples - samples)
