"""Measured times: samples, intervals, ratios of pairs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import fmean, median, stdev

from probes.codec import NonNegative
from probes.disturbance import Disturbance
from probes.errors import InvalidMeasurementError

_CONFIDENCE = 0.95

_UNKNOWN_FACTOR = 2.0
"""How far off a time may be when too few samples show a spread of their own. An assumption."""

_WIDENING = {3: 1.0, 4: 0.35, 5: 0.05}
"""Share of the range that is added on both sides of so many samples.

Smallest to largest of n samples covers the median with probability 1 - 2 / 2**n: 75 %, 87.5 % and
93.75 %. These shares lift it to 95 % for normal and for exponential noise (found by simulation).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A value with its 95 % confidence interval: ``low <= median <= high``."""

    median: float
    low: float
    high: float

    count: int
    """Samples that it rests on."""

    def scaled(self, factor: float) -> Interval:
        """Multiply it by a factor above 0."""
        return replace(
            self, median=factor * self.median, low=factor * self.low, high=factor * self.high
        )

    def reciprocal(self, numerator: float = 1.0) -> Interval:
        """Divide a number by it: samples by their rate are a time."""
        return replace(
            self,
            median=numerator / self.median,
            low=numerator / self.high,
            high=numerator / self.low,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DisturbedTurn:
    """A turn in a race that others disturbed."""

    round: int
    disturbance: Disturbance

    was_repeated: bool
    """Whether its time was thrown away, and the plan had another turn in the round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Times of the steps of one run, all of them, in the order in which they were taken.

    Raises:
        InvalidMeasurementError: There is no sample, or a time is not a positive number.
    """

    warmup_s: tuple[float, ...] = ()
    """Times of the steps that were discarded."""

    samples_s: tuple[float, ...]
    """Times of the steps that count; in a race the mean step of each turn."""

    rounds: tuple[int, ...] = ()
    """Round of a race in which each sample was taken; empty for a run without turns. Samples of
    equal rounds were taken side by side."""

    drift: float = 1.0
    """How slow the machine was meanwhile: step time here / in the race as a whole."""

    starts: int = 1
    """How often its processes were started for them."""

    spent_s: NonNegative | None = None
    """Time of all steps, where samples are means of several."""

    input_share: float | None = None
    """Part of the time in which steps waited for their samples; in a race, of the turns."""

    disturbed: tuple[DisturbedTurn, ...] = ()
    """Its turns that others disturbed, repeated ones too; trials of earlier releases know none."""

    def __post_init__(self) -> None:
        if not self.samples_s:
            raise InvalidMeasurementError("samples_s=(): measure at least one step")
        if self.rounds and len(self.rounds) != len(self.samples_s):
            raise InvalidMeasurementError(
                f"{len(self.rounds)} rounds of {len(self.samples_s)} samples: name that of each"
            )
        _check_times((*self.warmup_s, *self.samples_s))
        if not (math.isfinite(self.drift) and self.drift > 0 and self.starts > 0):
            raise InvalidMeasurementError(
                f"drift={self.drift!r} and starts={self.starts}: use numbers above 0"
            )

    @property
    def median_s(self) -> float:
        """Median of the samples."""
        return median(self.samples_s)

    @property
    def total_s(self) -> float:
        """Time spent in all steps, warm-up included."""
        if self.spent_s is not None:
            return self.spent_s
        return math.fsum(self.warmup_s) + math.fsum(self.samples_s)

    @property
    def most_slowed(self) -> float:
        """Times that others may have made the median longer, at most.

        It is 1 where most turns had none beside them.
        """
        slowed = self.slowed_rounds()
        return median(slowed.get(number, 1.0) for number in self.rounds) if self.rounds else 1.0

    def slowed_rounds(self) -> dict[int, float]:
        """Give by how much others may have slowed it at most, by the rounds in which they did."""
        counted = (turn for turn in self.disturbed if not turn.was_repeated)
        return {turn.round: turn.disturbance.most_slowed for turn in counted}

    def interval_s(self) -> Interval:
        """Give the median with its 95 % interval, which assumes no shape of the noise.

        The interval runs between two order statistics, interpolated to 95 % (Hettmansperger and
        Sheather, "Confidence intervals based on interpolated order statistics", 1986). It is what
        the percentile bootstrap of the median tends to, without that one's error for few samples
        (7 samples: it covers 87 %, not 95 %), without chance, and quick enough for every step.

        Three to five samples cannot reach 95 % that way, so their range is widened. One or two show
        nothing of their spread: they get half the smallest to twice the largest, so that only
        a difference of that size can count as one.
        """
        ordered = sorted(self.samples_s)
        low, high = _bounds(ordered)
        return Interval(median=median(ordered), low=low, high=high, count=len(ordered))


def paired_ratio(pairs: Sequence[tuple[float, float]]) -> Interval:
    """Give the geometric mean of ``first / second`` over pairs, with Student's 95 % interval.

    For benches in alternating blocks (A B B A): what slows both halves of a pair cancels out.
    ``median`` holds the geometric mean. A single pair shows no spread; its interval is the ratio
    halved and doubled.

    Raises:
        InvalidMeasurementError: There is no pair, or a value is not a positive number.
    """
    if not pairs:
        raise InvalidMeasurementError("pairs=(): measure at least one pair")
    _check_times(value for pair in pairs for value in pair)
    logs = [math.log(first / second) for first, second in pairs]
    half = math.log(_UNKNOWN_FACTOR)
    if len(logs) > 1:
        half = student_quantile(len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    centre = fmean(logs)
    return Interval(
        median=math.exp(centre),
        low=math.exp(centre - half),
        high=math.exp(centre + half),
        count=len(logs),
    )


def _bounds(ordered: Sequence[float]) -> tuple[float, float]:
    count, smallest, largest = len(ordered), ordered[0], ordered[-1]
    if count < min(_WIDENING):
        return smallest / _UNKNOWN_FACTOR, largest * _UNKNOWN_FACTOR
    if count in _WIDENING:
        widening = _WIDENING[count] * (largest - smallest)
        return max(smallest - widening, smallest / _UNKNOWN_FACTOR), largest + widening
    rank = _low_rank(count)
    return _at_rank(ordered, rank), _at_rank(ordered, count - 1 - rank)


def _at_rank(ordered: Sequence[float], rank: float) -> float:
    below = math.floor(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (rank - below) * (ordered[above] - ordered[below])


@cache
def _low_rank(count: int) -> float:
    """Rank, from 0 and fractional, of the lower bound among ``count >= 6`` ordered samples."""
    if count > 200:  # the exact sums get long, and the normal limit is close enough
        return (count - 1) / 2 - 0.98 * math.sqrt(count)
    subsets = float(2**count)
    outside, covered = 2 / subsets, 1.0
    depth = 0  # the interval from the depth-th smallest to the depth-th largest covers `covered`
    while (inner := covered - outside) >= _CONFIDENCE:
        depth, covered = depth + 1, inner
        outside = 2 * math.comb(count, depth) / subsets
    excess = (covered - _CONFIDENCE) / (covered - inner)
    weight = (count - depth) * excess / (depth + (count - 2 * depth) * excess)
    return depth - 1 + weight


NORMAL_95 = 1.96
"""Quantile 0.975 of the normal distribution: 95 % of it are within so many deviations."""


def student_quantile(degrees: int) -> float:
    """Quantile 0.975 of Student's t distribution, from the usual table."""
    return _STUDENT[degrees - 1] if degrees <= len(_STUDENT) else NORMAL_95 + 2.4 / degrees


_STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


def _check_times(times_s: Iterable[float]) -> None:
    for time_s in times_s:
        if not (math.isfinite(time_s) and time_s > 0):
            raise InvalidMeasurementError(f"time_s={time_s!r}: use a positive number of seconds")
