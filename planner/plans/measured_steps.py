"""Step time of a plan as a line over the batch, with the measured points of the fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from launch.shares import StepTime, fit_step_time
from probes import codec
from probes.codec import Count, Positive

_FIXED_S_PER_BYTE = 4e-10
"""Of gradients: weights are read forward and backward, gradients written, and the update reads and
writes weights, gradients and momentum: eight times their size, at 20 GB/s of a core."""

_LARGEST_FIXED = 0.5
"""Part of a step: the assumed cost must not outweigh the measured time."""


_LARGEST_MISS = 0.2
"""Of the logarithm of a step's time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPoint:
    """Measured step time of a plan with one batch."""

    node_batch: Count
    step_s: Positive
    """Median, without the machine's drift where that is known."""

    peak_memory_bytes: Count | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSteps:
    """Step time as a line over the batch, with the points it was fitted to."""

    step_time: StepTime
    points: tuple[StepPoint, ...]
    """One a batch, the smallest first; at least one."""

    @property
    def largest_batch(self) -> int:
        """Largest batch that was measured."""
        return self.points[-1].node_batch

    def contradicts(self, node_batch: int, samples_per_s: float) -> bool:
        """Tell whether a line through several batches misses a rate with one of them.

        Its points are of other moments of the machine: where they were disturbed, so is the line.
        """
        ratio = self.step_time.at(node_batch) * samples_per_s / node_batch
        return len(self.points) > 1 and abs(math.log(ratio)) > _LARGEST_MISS

    def to_json(self) -> dict[str, Any]:
        """Give the line and its points as plain values that JSON can hold."""
        return {**codec.to_builtins(self.step_time), "points": codec.to_builtins(self.points)}


def steps_from_points(points: Sequence[StepPoint]) -> MeasuredSteps:
    """Fit the line to at least one point; of points of one batch the last counts."""
    latest = {point.node_batch: point for point in points}
    ordered = tuple(latest[batch] for batch in sorted(latest))
    line = fit_step_time([(point.node_batch, point.step_s) for point in ordered])
    return MeasuredSteps(step_time=line, points=ordered)


def add_fixed_cost(steps: MeasuredSteps, gradient_bytes: int) -> MeasuredSteps:
    """Add an estimated fixed cost to steps that were measured with one batch only.

    For plans on a CPU, where each step takes time to read the weights and to update them.
    """
    (point,) = steps.points
    fixed_s = min(_FIXED_S_PER_BYTE * gradient_bytes, _LARGEST_FIXED * point.step_s)
    line = StepTime(fixed_s=fixed_s, per_sample_s=(point.step_s - fixed_s) / point.node_batch)
    return replace(steps, step_time=line)
