"""Objective: what a plan was chosen for, where that is not throughput, with what it rests on."""

from __future__ import annotations

import math
from dataclasses import dataclass

from launch.noise_scale.efficiency import cautious_efficiency
from planner.quantities import format_number
from probes.codec import Count, NonNegative, Positive
from probes.timing import Interval

TIME_TO_LOSS = "time-to-loss"
OBJECTIVES = ("throughput", TIME_TO_LOSS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """Time to a loss: throughput times what a sample is worth in a batch.

    The scale is that at the end of a short training with the use case's own batch. It grows as a
    training goes on, so that later larger batches would do.
    """

    name: str
    noise_scale: Positive
    """In samples."""
    noise_low: NonNegative
    noise_high: NonNegative
    base_batch: Count
    """The use case's own, in which a sample is worth 1."""
    steps: Count
    """Of the training that the scale was measured in."""
    train_loss: float | None = None
    """Of its last steps."""
    caveat: str | None = None
    """Why the scale may be wrong."""
    target: str | None = None
    """What the user wants to reach, such as ``validation loss 0.3``."""
    target_samples: Positive | None = None
    """Samples after which that training reached it; ``None`` where it did not, and so nothing is
    predicted."""

    def efficiency(self, batch: int, scaling: str) -> float:
        """Give the worth of a sample in a batch, see `launch.noise_scale.efficiency`."""
        scale, high = self.noise_scale, self.noise_high
        return cautious_efficiency(scale, high, batch, self.base_batch, scaling)

    def efficiency_range(self, batch: int, scaling: str) -> Interval:
        """Give the worth of a sample in a batch, with what the scale's interval makes of it."""
        worths = [
            cautious_efficiency(scale, high, batch, self.base_batch, scaling)
            for scale, high in (
                (self.noise_scale, self.noise_high),
                (self.noise_low, self.noise_low),
                (self.noise_high, self.noise_high),
            )
        ]
        return Interval(median=worths[0], low=min(worths), high=max(worths), count=self.steps)

    def predict_s(self, batch: int, scaling: str, samples_per_s: Interval) -> Interval | None:
        """Predict the time until the target; ``None`` where nothing is known of it.

        The interval is that of a product whose factors, rate and worth, err independently: errors
        of logarithms add up as squares. The samples until the target are those of one training.
        """
        if self.target_samples is None:
            return None
        rate, worth = samples_per_s, self.efficiency_range(batch, scaling)
        time_s = self.target_samples / (rate.median * worth.median)
        sooner = math.hypot(*(math.log(one.high / one.median) for one in (rate, worth)))
        later = math.hypot(*(math.log(one.median / one.low) for one in (rate, worth)))
        return Interval(
            median=time_s,
            low=time_s * math.exp(-sooner),
            high=time_s * math.exp(later),
            count=rate.count,
        )


def describe_objective(objective: Objective) -> str:
    """Say what the scale is and where it was measured."""
    low, high = objective.noise_low, objective.noise_high
    loss = "" if objective.train_loss is None else f", training loss {objective.train_loss:.3g}"
    doubt = "" if objective.caveat is None else f"; not reliable with {objective.caveat}"
    span = f"({format_number(low)} to {format_number(high)})"
    return (
        f"noise scale {format_number(objective.noise_scale)} samples {span} after "
        f"{objective.steps} steps of {objective.base_batch}{loss}{doubt}"
    )
