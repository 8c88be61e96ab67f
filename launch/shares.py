"""Shares of the global batch, one for each node, with which all nodes finish a step together.

A node needs ``T(n) = a + b n`` seconds for a step of ``n`` samples: ``a`` for what every step costs
(starting operators, averaging, updating the weights), ``b`` for each sample. The job waits for its
slowest node, so the fastest shares are those with the smallest ``max(a_i + b_i n_i)``. Nothing here
knows of processes, MPI or torch.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from launch.errors import InvalidPlanError
from launch.plan import Plan

_MIN_SLOPE = 0.1
"""Least time of a sample / time of a sample of a proportional step.

A GPU that is not full takes as long for 64 samples as for 32. The line through both would let it
take any number more at no cost. An assumption, for batches beyond those that were measured.
"""

_ROUNDING = 1e-12

_LONGEST_S = 1e50
"""Of a step or a sample; the shortest is its reciprocal. So products are finite numbers too."""

_LEAST_OF_FIXED = 1e-12
"""Least time of a sample / what every step takes: their sum would not show a sample more."""

_LOTS = 2**12
"""Parts of what is left over that are assigned at once; fewer samples go one by one."""

_PREFERRED_MIN_BATCH = 2
"""Samples that a node gets where there are enough: layers that normalise refuse a single one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Time of a node's step as a linear function of its samples."""

    fixed_s: float
    """Time that every step takes, however few its samples."""

    per_sample_s: float

    def __post_init__(self) -> None:
        if not 0 <= self.fixed_s <= _LONGEST_S:
            raise InvalidPlanError(
                f"fixed_s={self.fixed_s!r}: use a number from 0 to {_LONGEST_S:g}"
            )
        if not 1 / _LONGEST_S <= self.per_sample_s <= _LONGEST_S:
            raise InvalidPlanError(
                f"per_sample_s={self.per_sample_s!r}: use a number above 0, up to {_LONGEST_S:g}"
            )
        per_sample_s = max(self.per_sample_s, _LEAST_OF_FIXED * self.fixed_s)
        object.__setattr__(self, "per_sample_s", per_sample_s)

    def at(self, samples: int) -> float:
        """Give the seconds of a step of so many samples; 0 for a node without any."""
        return self.fixed_s + self.per_sample_s * samples if samples else 0.0

    def scaled(self, factor: float) -> StepTime:
        """Give the time of a node that is slower by a factor."""
        return StepTime(fixed_s=self.fixed_s * factor, per_sample_s=self.per_sample_s * factor)

    def samples_within(self, time_s: float) -> int:
        """Give the largest number of samples of a step that takes so many seconds at most."""
        if time_s < self.at(1):
            return 0
        samples = max(1, math.floor((time_s - self.fixed_s) / self.per_sample_s))
        # The division may be off by one where the line itself is not.
        while self.at(samples + 1) <= time_s:
            samples += 1
        while self.at(samples) > time_s:
            samples -= 1
        return samples


def fit_step_time(points: Sequence[tuple[int, float]]) -> StepTime:
    """Fit a line to measured steps, by least squares of the relative errors.

    Step times err by so many percent, not by so many seconds. A single point gives a step time that
    is proportional to the samples; so do points whose line would start below 0.

    Args:
        points: Samples of a step and the seconds that it took.

    Raises:
        InvalidPlanError: There is no point, or one is not of positive numbers.
    """
    if not points or any(n < 1 or not (0 < t < math.inf) for n, t in points):
        raise InvalidPlanError(f"points={points!r}: measure a step of at least one sample")
    weighed = [(1 / time_s**2, samples, time_s) for samples, time_s in points]
    total = math.fsum(w for w, _, _ in weighed)
    mean_n = math.fsum(w * n for w, n, _ in weighed) / total
    mean_s = math.fsum(w * t for w, _, t in weighed) / total
    spread = math.fsum(w * (n - mean_n) ** 2 for w, n, _ in weighed)
    joint = math.fsum(w * (n - mean_n) * (t - mean_s) for w, n, t in weighed)
    # Proportional: of all lines through 0 the one with the smallest relative errors.
    proportional = math.fsum(n / t for n, t in points) / math.fsum((n / t) ** 2 for n, t in points)
    if spread == 0:
        return StepTime(fixed_s=0.0, per_sample_s=proportional)
    slope = max(joint / spread, _MIN_SLOPE * proportional)
    fixed_s = mean_s - slope * mean_n
    if fixed_s <= 0:
        return StepTime(fixed_s=0.0, per_sample_s=proportional)
    return StepTime(fixed_s=fixed_s, per_sample_s=slope)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLimits:
    """Node batches that one node can take."""

    min_batch: int = 1
    max_batch: int | None = None
    """``None`` where nothing is known to limit it."""
    multiple: int = 1
    """Number that the node batch should be a multiple of."""

    @classmethod
    def of_plan(cls, plan: Plan, max_batch: int | None = None) -> NodeLimits:
        """Give the limits of a plan: each micro-batch needs a sample, and all should be equal.

        A pipeline whose share cannot be cut into equal micro-batches uses fewer of them, and idles
        more.
        """
        least = plan.replicas * plan.micro_batches
        return cls(
            min_batch=least,
            max_batch=None if max_batch is None else max(max_batch, least),
            multiple=least if plan.micro_batches > 1 else 1,
        )

    def allow(self, batch: int) -> bool:
        """Whether a node batch is between the minimum and the maximum."""
        return self.clip(batch) == batch

    def clip(self, batch: int) -> int:
        """Give the batch, or the nearest one between the minimum and the maximum."""
        batch = max(batch, self.min_batch)
        return batch if self.max_batch is None else min(batch, self.max_batch)


NO_LIMITS = NodeLimits()


def balance_batches(
    times: Sequence[StepTime], global_batch: int, limits: Sequence[NodeLimits] | None = None
) -> tuple[int, ...]:
    """Assign a global batch so that the slowest node is as fast as it can be.

    Exact: samples are assigned one by one, each to the node that finishes it first, which no other
    way can beat because a step never gets shorter with a sample more. All but the last few are
    assigned at once. Shares of nodes that need a multiple are then rounded to one, and what that
    leaves over is assigned in the same way; a share is no multiple only where no other node can
    take the rest.

    Args:
        times: Of each node.
        global_batch: Samples to assign.
        limits: Of each node, none where left out. Every node gets samples, useful or not.

    Returns:
        Node batches, in the order of ``times``; their sum is ``global_batch``.

    Raises:
        InvalidPlanError: The nodes cannot take so many samples, or so few.
    """
    limits = limits or [NO_LIMITS] * len(times)
    most = [
        global_batch if one.max_batch is None else min(one.max_batch, global_batch)
        for one in limits
    ]
    least = [one.min_batch for one in limits]
    if sum(most) < global_batch:
        raise InvalidPlanError(
            f"global_batch={global_batch} and max_batches={_format(most)}: use at most {sum(most)} "
            "samples"
        )
    is_short = any(low > high for low, high in zip(least, most, strict=True))
    if is_short or sum(least) > global_batch:
        raise InvalidPlanError(
            f"global_batch={global_batch}, min_batches={_format(least)} and "
            f"max_batches={_format(most)}: use at least {sum(least)} samples, or fewer hosts"
        )
    good = [
        min(max(low, _PREFERRED_MIN_BATCH), high) for low, high in zip(least, most, strict=True)
    ]
    least = good if sum(good) <= global_batch else least
    batches = _assign(times, global_batch, least, most)
    multiples = [one.multiple for one in limits]
    if max(multiples) > 1:
        return _round_to_multiples(times, batches, multiples, least, most)
    return batches


def _round_to_multiples(
    times: Sequence[StepTime],
    batches: Sequence[int],
    multiples: Sequence[int],
    least: Sequence[int],
    most: Sequence[int],
) -> tuple[int, ...]:
    """Round batches to multiples, with the same sum."""
    coarse = sum(multiple for multiple in multiples if multiple > 1)
    # What nodes without a multiple may have to give, so that others can be rounded up.
    slack = -(-coarse // max(1, multiples.count(1)))
    rounded = [
        max(low, batch // multiple * multiple if multiple > 1 else batch - slack)
        for batch, multiple, low in zip(batches, multiples, least, strict=True)
    ]
    left, lot = sum(batches) - sum(rounded), coarse
    while lot:  # ever smaller ones: a file may ask for any multiple
        lot //= _LOTS
        lots = [multiple * max(1, lot // multiple) for multiple in multiples]
        left = _assign_rest(times, rounded, left, lots, most)
    return _assign(times, sum(batches), rounded, most)


def _assign_rest(
    times: Sequence[StepTime],
    batches: list[int],
    left: int,
    multiples: Sequence[int],
    most: Sequence[int],
) -> int:
    """Add one multiple after the other, each to the node that finishes first; give what is left."""
    queue = [(times[n].at(batches[n] + multiple), n) for n, multiple in enumerate(multiples)]
    heapq.heapify(queue)
    while left > 0 and queue:
        _, node = heapq.heappop(queue)
        multiple = multiples[node]
        if multiple <= left and batches[node] + multiple <= most[node]:
            batches[node] += multiple
            left -= multiple
            heapq.heappush(queue, (times[node].at(batches[node] + multiple), node))
    return left


def _assign(
    times: Sequence[StepTime], global_batch: int, least: Sequence[int], most: Sequence[int]
) -> tuple[int, ...]:
    """Assign a batch to nodes of which each takes its least."""
    level_s = (1 - _ROUNDING) * _level_s(times, global_batch, least, most)
    batches = [
        # A full node may have time for more samples than floats tell apart.
        high if time.at(high) <= level_s else max(time.samples_within(level_s), low)
        for time, low, high in zip(times, least, most, strict=True)
    ]
    # What is left is less than a sample a node.
    _assign_rest(times, batches, global_batch - sum(batches), [1] * len(times), most)
    return tuple(batches)


def _level_s(
    times: Sequence[StepTime], global_batch: int, least: Sequence[int], most: Sequence[int]
) -> float:
    """Give the time at which all nodes would finish, could samples be cut up (water-filling).

    Each node takes its least from the start. It takes more from the time on that its least needs,
    until the time that its most needs.
    """
    changes = []
    for time, low, high in zip(times, least, most, strict=True):
        if low < high:
            changes.append((time.at(low), 1 / time.per_sample_s))
            changes.append((time.at(high), -1 / time.per_sample_s))
    changes.sort()
    assigned, per_s, level_s = float(sum(least)), 0.0, 0.0
    for time_s, change in changes:
        more = per_s * (time_s - level_s)
        if assigned + more >= global_batch:
            return level_s + (global_batch - assigned) / per_s if per_s else level_s
        assigned, per_s, level_s = assigned + more, per_s + change, time_s
    return level_s


def _format(batches: Sequence[int]) -> str:
    return ",".join(map(str, batches))
