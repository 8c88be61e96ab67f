"""Objective: what a plan was chosen for, where that is not throughput, with what it rests on."""

from __future__ import annotations

from dataclasses import dataclass

from launch.noise_scale.efficiency import cautious_efficiency
from planner.quantities import format_number
from probes.codec import Count, Positive

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
    noise_low: float
    noise_high: float
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
    target_samples: float | None = None
    """Samples after which that training reached it; ``None`` where it did not, and so nothing is
    predicted."""

    def efficiency(self, batch: int, scaling: str) -> float:
        """Give the worth of a sample in a batch, see `launch.noise_scale.efficiency`."""
        scale, high = self.noise_scale, self.noise_high
        return cautious_efficiency(scale, high, batch, self.base_batch, scaling)

    def predict_s(self, batch: int, scaling: str, samples_per_s: float) -> float | None:
        """Predict the time until the target; ``None`` where nothing is known of it."""
        if self.target_samples is None:
            return None
        return self.target_samples / (samples_per_s * self.efficiency(batch, scaling))


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
