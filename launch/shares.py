"""Which share of the global batch does each node take? One that lets all finish together.

A node needs ``T(n) = a + b n`` seconds for a step of ``n`` samples: ``a`` for what every step costs
(starting operators, averaging, updating the weights), ``b`` for each sample. The job waits for its
slowest node, so of all ways to deal out a global batch the one with the smallest
``max(a_i + b_i n_i)`` is the fastest. Nothing here knows of processes, MPI or torch.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from launch.errors import InvalidPlanError
from launch.plan import Plan

T = TypeVar("T")

_LEAST_SLOPE = 0.1
"""Of a proportional step: what a sample costs at least.

A GPU that is not full takes as long for 64 samples as for 32. The line through both would let it
take any number more at no cost. An assumption, for batches beyond those that were measured.
"""

_ROUNDING = 1e-12

_GOOD_FLOOR = 2
"""Samples that a node gets where there are enough: layers that normalise refuse a single one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Time of one step of a node as a line over its samples."""

    fixed_s: float
    """Time that every step takes, however few its samples."""

    per_sample_s: float

    def __post_init__(self) -> None:
        values = (self.fixed_s, self.per_sample_s)
        if not all(math.isfinite(value) for value in values) or self.fixed_s < 0:
            raise InvalidPlanError(f"fixed_s={self.fixed_s!r}: use a number of at least 0")
        if self.per_sample_s <= 0:
            raise InvalidPlanError(f"per_sample_s={self.per_sample_s!r}: use a number above 0")

    def at(self, samples: int) -> float:
        """Give the seconds of a step of so many samples; a node without any does nothing."""
        return self.fixed_s + self.per_sample_s * samples if samples else 0.0

    def scaled(self, factor: float) -> StepTime:
        """Give the time of a node that is slower by a factor."""
        return StepTime(fixed_s=self.fixed_s * factor, per_sample_s=self.per_sample_s * factor)

    def samples_within(self, time_s: float) -> int:
        """Give how many samples at most a step of so many seconds has room for."""
        if time_s < self.at(1):
            return 0
        samples = max(1, math.floor((time_s - self.fixed_s) / self.per_sample_s))
        # The division may be off by one where the line itself is not.
        while self.at(samples + 1) <= time_s:
            samples += 1
        while self.at(samples) > time_s:
            samples -= 1
        return samples

    def to_json(self) -> dict[str, float]:
        """Give the line as plain values that JSON can hold."""
        return {"fixed_s": self.fixed_s, "per_sample_s": self.per_sample_s}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> StepTime:
        """Read a line back from `to_json`; other keys are left out."""
        return cls(fixed_s=values["fixed_s"], per_sample_s=values["per_sample_s"])


def fit_step_time(points: Sequence[tuple[int, float]]) -> StepTime:
    """Lay a line through measured steps, by least squares of the relative errors.

    Step times err by so many percent, not by so many seconds. A single point gives a step that is
    proportional to its samples; so do points whose line would start below 0.

    Args:
        points: Samples of a step and the seconds that it took.

    Raises:
        InvalidPlanError: There is no point, or one is not of positive numbers.
    """
    if not points or any(n < 1 or not (0 < t < math.inf) for n, t in points):
        raise InvalidPlanError(f"points={points!r}: measure a step of at least one sample")
    weights = [1 / time_s**2 for _, time_s in points]
    total = math.fsum(weights)
    mean_n = math.fsum(w * n for w, (n, _) in zip(weights, points, strict=True)) / total
    mean_s = math.fsum(w * t for w, (_, t) in zip(weights, points, strict=True)) / total
    spread = math.fsum(w * (n - mean_n) ** 2 for w, (n, _) in zip(weights, points, strict=True))
    joint = math.fsum(
        w * (n - mean_n) * (t - mean_s) for w, (n, t) in zip(weights, points, strict=True)
    )
    # Proportional: of all lines through 0 the one with the smallest relative errors.
    proportional = math.fsum(n / t for n, t in points) / math.fsum((n / t) ** 2 for n, t in points)
    if spread == 0:
        return StepTime(fixed_s=0.0, per_sample_s=proportional)
    slope = max(joint / spread, _LEAST_SLOPE * proportional)
    fixed_s = mean_s - slope * mean_n
    if fixed_s <= 0:
        return StepTime(fixed_s=0.0, per_sample_s=proportional)
    return StepTime(fixed_s=fixed_s, per_sample_s=slope)


def smallest_batch(plan: Plan) -> int:
    """Give the smallest node batch of a plan: each micro-batch needs a sample."""
    return plan.replicas * plan.micro_batches


def batch_granule(plan: Plan) -> int:
    """Give what the node batches of a plan are multiples of, so that its micro-batches are equal.

    A pipeline with a share that cannot be cut up so runs in fewer micro-batches, and idles more.
    """
    return smallest_batch(plan) if plan.micro_batches > 1 else 1


def equalise(
    times: Sequence[StepTime],
    global_batch: int,
    caps: Sequence[int | None] | None = None,
    *,
    floors: Sequence[int] | None = None,
    granules: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """Deal out a global batch so that the slowest node is as fast as it can be.

    Exact: samples are dealt one by one, each to the node that is done with it first, which no
    other way can beat because a step never gets shorter with a sample more. All but the last few
    are dealt at once. Shares of nodes that take samples in granules are then brought to whole ones,
    and what that leaves over is dealt in the same way; a granule is only broken where nobody else
    can take the rest.

    Args:
        times: Of each node.
        global_batch: Samples to deal out.
        caps: Largest node batch of each node, ``None`` where nothing is known to limit it.
        floors: Smallest node batch of each node, 1 where left out. Whether a node should take
            part at all is not asked here: each gets samples.
        granules: What each node's batch should be a multiple of, 1 where left out.

    Returns:
        Node batches, in the order of ``times``; their sum is ``global_batch``.

    Raises:
        InvalidPlanError: The nodes cannot take so many samples, or so few.
    """
    most = [global_batch if cap is None else min(cap, global_batch) for cap in _or(caps, times)]
    least = [floor or 1 for floor in _or(floors, times)]
    if sum(most) < global_batch:
        raise InvalidPlanError(
            f"global_batch={global_batch} and caps={_said(most)}: use at most {sum(most)} samples"
        )
    is_short = any(low > high for low, high in zip(least, most, strict=True))
    if is_short or sum(least) > global_batch:
        raise InvalidPlanError(
            f"global_batch={global_batch}, floors={_said(least)} and caps={_said(most)}: "
            f"use at least {sum(least)} samples, or fewer nodes"
        )
    good = [min(max(low, _GOOD_FLOOR), high) for low, high in zip(least, most, strict=True)]
    least = good if sum(good) <= global_batch else least
    batches = _dealt(times, global_batch, least, most)
    units = [unit or 1 for unit in _or(granules, times)]
    if max(units) > 1:
        return _in_granules(times, batches, units, least, most)
    return batches


def _in_granules(
    times: Sequence[StepTime],
    batches: Sequence[int],
    units: Sequence[int],
    least: Sequence[int],
    most: Sequence[int],
) -> tuple[int, ...]:
    """Bring batches to multiples of their units, with the same sum."""
    coarse = sum(unit for unit in units if unit > 1)
    # What the others may have to give, so that a granule can be filled up.
    slack = -(-coarse // max(1, units.count(1)))
    dealt = [
        max(low, batch // unit * unit if unit > 1 else batch - slack)
        for batch, unit, low in zip(batches, units, least, strict=True)
    ]
    left = sum(batches) - sum(dealt)
    left = _deal_on(times, dealt, left, units, most)
    _deal_on(times, dealt, left, [1] * len(units), most)
    return tuple(dealt)


def _deal_on(
    times: Sequence[StepTime],
    dealt: list[int],
    left: int,
    units: Sequence[int],
    most: Sequence[int],
) -> int:
    """Deal whole units to whoever is done with theirs first; give what is left in the end."""
    queue = [(times[n].at(dealt[n] + unit), n) for n, unit in enumerate(units)]
    heapq.heapify(queue)
    while left > 0 and queue:
        _, node = heapq.heappop(queue)
        unit = units[node]
        if unit <= left and dealt[node] + unit <= most[node]:
            dealt[node] += unit
            left -= unit
            heapq.heappush(queue, (times[node].at(dealt[node] + unit), node))
    return left


def _dealt(
    times: Sequence[StepTime], global_batch: int, least: Sequence[int], most: Sequence[int]
) -> tuple[int, ...]:
    """Deal out a batch of which every node takes its least."""
    level_s = (1 - _ROUNDING) * _level_s(times, global_batch, least, most)
    batches = [
        min(max(time.samples_within(level_s), low), high)
        for time, low, high in zip(times, least, most, strict=True)
    ]
    # What is left is less than a sample a node.
    queue = [
        (time.at(batch + 1), node)
        for node, (time, batch) in enumerate(zip(times, batches, strict=True))
        if batch < most[node]
    ]
    heapq.heapify(queue)
    for _ in range(global_batch - sum(batches)):
        _, node = heapq.heappop(queue)
        batches[node] += 1
        if batches[node] < most[node]:
            heapq.heappush(queue, (times[node].at(batches[node] + 1), node))
    return tuple(batches)


def _level_s(
    times: Sequence[StepTime], global_batch: int, least: Sequence[int], most: Sequence[int]
) -> float:
    """Give the time at which all would be done, could samples be cut up.

    As water that fills vessels: each takes its least from the start, begins to rise when the level
    reaches what its least takes, and is full when it reaches what its most takes.
    """
    changes = []
    for time, low, high in zip(times, least, most, strict=True):
        if low < high:
            changes.append((time.at(low), 1 / time.per_sample_s))
            changes.append((time.at(high), -1 / time.per_sample_s))
    changes.sort()
    dealt, per_s, level_s = float(sum(least)), 0.0, 0.0
    for time_s, change in changes:
        more = per_s * (time_s - level_s)
        if dealt + more >= global_batch:
            return level_s + (global_batch - dealt) / per_s if per_s else level_s
        dealt, per_s, level_s = dealt + more, per_s + change, time_s
    return level_s


def _or(values: Sequence[T] | None, times: Sequence[StepTime]) -> Sequence[T | None]:
    return [None] * len(times) if values is None else values


def _said(batches: Sequence[int]) -> str:
    return ",".join(map(str, batches))
