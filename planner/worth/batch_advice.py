"""Advice on the batch: what a smaller or larger one would mean for the time to a loss."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from launch.noise_scale.efficiency import cautious_efficiency
from launch.noise_scale.estimate import NoiseScale
from launch.plan import Plan
from planner.plans.measured_steps import MeasuredSteps
from planner.plans.objective import Objective
from probes.timing import Interval

_FACTORS = (0.25, 0.5, 1, 2, 4)

LINE_MISSES = (
    "step times with other batches contradict the plan's own rate: tune again on a quiet machine"
)
"""Where `MeasuredSteps.contradicts` says so of the plan's batch and rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredNoise:
    """A noise scale that a training has measured, and where."""

    noise: NoiseScale

    training_id: int | None = None
    """``None`` where it was the short training of the plan's search."""

    epoch: int | None = None
    """After which, from 1; ``None`` likewise."""

    @classmethod
    def of_objective(cls, objective: Objective) -> MeasuredNoise:
        """Give the scale that a plan was chosen by."""
        noise = NoiseScale(
            scale=objective.noise_scale,
            low=objective.noise_low,
            high=objective.noise_high,
            variance=None,
            square=None,
            measurements=objective.steps,
            caveat=objective.caveat,
        )
        return cls(noise=noise)

    @property
    def where(self) -> str:
        """Say when in which training it was measured."""
        if self.training_id is None:
            return f"after {self.noise.measurements} steps of the search's short training"
        return f"after epoch {self.epoch} of training {self.training_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchChoice:
    """What one batch would mean, everything else of the plan being the same."""

    node_batch: int
    samples_per_s: float
    """By the line through the plan's step times."""

    worth: float
    """Of a sample, against one in the use case's own batch."""

    worth_ci_low: float
    """Lower end of the interval that the one of the noise scale gives."""

    worth_ci_high: float
    time_to_loss: float
    """Time until some loss / that of the plan as it is."""

    time_to_loss_ci_low: float
    """Lower end of the interval that the noise scale and the plan's rate give together."""

    time_to_loss_ci_high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAdvice:
    """Time to a loss with several batches, among them that of the plan."""

    measured: MeasuredNoise
    base_batch: int
    lr_scaling: str
    choices: tuple[BatchChoice, ...]


def advise(
    plan: Plan,
    samples_per_s: Interval,
    steps: MeasuredSteps | None,
    measured: MeasuredNoise | None,
    base_batch: int,
) -> BatchAdvice | None:
    """Say what batches other than a plan's would mean, by its rate and its step times.

    The worth of a sample is 1 in the use case's own batch, ``base_batch``.

    Returns:
        ``None`` where it is not known: see `why_no_advice`.
    """
    if steps is None or len(steps.points) < 2 or measured is None:
        return None
    scale, low, high = measured.noise.scale, measured.noise.low, measured.noise.high
    if not scale or low is None or high is None:
        return None

    def rate(batch: int) -> float:
        return batch / steps.step_time.at(batch)

    def worths(batch: int) -> list[float]:
        """Give the worth of a sample by the scale and by both ends of its interval."""
        return [
            cautious_efficiency(phi, end, batch, base_batch, plan.lr_scaling)
            for phi, end in ((scale, high), (low, low), (high, high))
        ]

    own_rate, own_worths = rate(plan.node_batch), worths(plan.node_batch)
    # The line has no interval of its own. Its rates with other batches count as no surer than the
    # plan's.
    middle = samples_per_s.median
    doubt = math.log(max(samples_per_s.high / middle, middle / samples_per_s.low))

    def choices() -> Iterator[BatchChoice]:
        least = plan.replicas * plan.micro_batches
        for batch in dict.fromkeys(round(factor * plan.node_batch) for factor in _FACTORS):
            if batch < least:
                continue
            worth = worths(batch)
            # Both batches have the same noise scale, so the ends of a quotient are not those of
            # its parts.
            times = [
                own_rate * own / (rate(batch) * other)
                for own, other in zip(own_worths, worth, strict=True)
            ]
            rate_doubt = doubt if batch != plan.node_batch else 0.0
            # Rate and worth err independently: errors of logarithms add up as squares.
            sooner = math.hypot(math.log(times[0] / min(times)), rate_doubt)
            later = math.hypot(math.log(max(times) / times[0]), rate_doubt)
            yield BatchChoice(
                node_batch=batch,
                samples_per_s=rate(batch),
                worth=worth[0],
                worth_ci_low=min(worth),
                worth_ci_high=max(worth),
                time_to_loss=times[0],
                time_to_loss_ci_low=times[0] * math.exp(-sooner),
                time_to_loss_ci_high=times[0] * math.exp(later),
            )

    return BatchAdvice(
        measured=measured,
        base_batch=base_batch,
        lr_scaling=plan.lr_scaling,
        choices=tuple(choices()),
    )


def why_no_advice(steps: MeasuredSteps | None, measured: MeasuredNoise | None) -> str:
    """Say what `advise`, which knew nothing, would have to know."""
    if steps is None or len(steps.points) < 2:
        return "the step time was not measured with other batches"
    if measured is None:
        return (
            "no training of this use case with these data has measured the noise scale: launch a "
            "plan with several workers or micro-batches, or use tune --objective time-to-loss"
        )
    value = "unclear" if measured.noise.scale is None else "0"
    return f"the noise scale was {value} {measured.where}, the last one that measured it"
