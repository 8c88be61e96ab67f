"""Step times: warm-up, samples, intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import fmean, median, quantiles, stdev

from probes.errors import InvalidMeasurementError

CONFIDENCE = 0.95
PRECISE_HALF_WIDTH = 0.015
STEADY_WINDOW = 5
STEADY_CHANGE = 0.02
NOISY_SPREAD = 0.10

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

    spent_s: float | None = None
    """Time of all steps, where samples are means of several."""

    input_share: float | None = None
    """Part of the time in which steps waited for their samples."""

    def __post_init__(self) -> None:
        if not self.samples_s:
            raise InvalidMeasurementError("samples_s=(): measure at least one step")
        if self.rounds and len(self.rounds) != len(self.samples_s):
            raise InvalidMeasurementError(
                f"{len(self.rounds)} rounds of {len(self.samples_s)} samples: name that of each"
            )
        _check_times((*self.warmup_s, *self.samples_s))

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
    def relative_half_width(self) -> float:
        """Half of the interval over the median; infinite below three samples."""
        if len(self.samples_s) < min(_WIDENING):
            return math.inf
        interval = self.interval_s()
        return (interval.high - interval.low) / 2 / interval.median

    @property
    def spread(self) -> float | None:
        """Interquartile range over the median; ``None`` below four samples."""
        if len(self.samples_s) < 4:
            return None
        first, _, third = quantiles(self.samples_s, n=4, method="inclusive")
        return (third - first) / self.median_s

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


def ratio(slow: Measurement, fast: Measurement, scale: float = 1.0) -> Interval:
    """Give ``scale * median(slow) / median(fast)`` with its 95 % interval.

    The two intervals are joined by their distances on the log scale, as two sides of a right
    angle (Zou and Donner, "Construction of confidence limits about effect measures", 2008).

    Args:
        slow: Usually the baseline.
        fast: Usually the plan: the result is above 1 where it is the faster one.
        scale: Evens out unequal work: the plan's batch over the baseline's, for a speedup.
    """
    above, below = slow.interval_s(), fast.interval_s()
    centre = scale * above.median / below.median
    down = math.hypot(_log_ratio(above.median, above.low), _log_ratio(below.high, below.median))
    up = math.hypot(_log_ratio(above.high, above.median), _log_ratio(below.median, below.low))
    return Interval(
        median=centre,
        low=centre * math.exp(-down),
        high=centre * math.exp(up),
        count=min(above.count, below.count),
    )


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


@dataclass(slots=True)
class StepTimes:
    """Recorder of step times that finds where warm-up ends.

    The first step is always warm-up. Then the median of a window of five steps slides along; once
    it has moved by less than 2 % from one step to the next, warm-up is over, in retrospect, where
    that window starts. So five steps count as soon as the run is warm, and never fewer.
    """

    times_s: list[float] = field(default_factory=list)
    """Every step so far."""

    _warmup_steps: int | None = None

    def add(self, time_s: float) -> None:
        """Record one step.

        Raises:
            InvalidMeasurementError: The time is not a positive number.
        """
        _check_times((time_s,))
        self.times_s.append(time_s)
        if self._warmup_steps is None and self._is_steady():
            self._warmup_steps = len(self.times_s) - STEADY_WINDOW

    @property
    def is_warm(self) -> bool:
        """Whether warm-up is over."""
        return self._warmup_steps is not None

    def is_precise(self, half_width: float = PRECISE_HALF_WIDTH) -> bool:
        """Whether the interval is narrower than ``+- half_width``, relative to the median."""
        known = self.measurement()
        return known is not None and known.relative_half_width <= half_width

    def measurement(self, *, force: bool = False) -> Measurement | None:
        """Return the measurement so far; ``None`` before warm-up is over, unless forced.

        Args:
            force: For a run whose time is up: without a steady window, every step but the first
                counts, and a lone first step counts as it is. Few samples have a wide interval,
                which shows that such a result is weak. ``None`` only without any step.
        """
        warmup_steps = self._warmup_steps
        if warmup_steps is None:
            if not force or not self.times_s:
                return None
            warmup_steps = min(1, len(self.times_s) - 1)
        times_s = tuple(self.times_s)
        return Measurement(warmup_s=times_s[:warmup_steps], samples_s=times_s[warmup_steps:])

    def _is_steady(self) -> bool:
        if len(self.times_s) < 1 + STEADY_WINDOW + 1:
            return False
        before = median(self.times_s[-STEADY_WINDOW - 1 : -1])
        now = median(self.times_s[-STEADY_WINDOW:])
        return abs(now - before) < STEADY_CHANGE * before


def find_noise_warning(measurement: Measurement) -> str | None:
    """Give one line with a remedy where step times vary much, else ``None``."""
    spread = measurement.spread
    if spread is None or spread < NOISY_SPREAD:
        return None
    return (
        f"step times vary by {100 * spread:.0f} %: another process may be using the cores; "
        "rerun on a quiet machine or raise --budget"
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
    while (inner := covered - outside) >= CONFIDENCE:
        depth, covered = depth + 1, inner
        outside = 2 * math.comb(count, depth) / subsets
    excess = (covered - CONFIDENCE) / (covered - inner)
    weight = (count - depth) * excess / (depth + (count - 2 * depth) * excess)
    return depth - 1 + weight


def student_quantile(degrees: int) -> float:
    """Quantile 0.975 of Student's t distribution, from the usual table."""
    return _STUDENT[degrees - 1] if degrees <= len(_STUDENT) else 1.96 + 2.4 / degrees


_STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


def _log_ratio(upper: float, lower: float) -> float:
    return math.log(upper / lower)


def _check_times(times_s: Iterable[float]) -> None:
    for time_s in times_s:
        if not (math.isfinite(time_s) and time_s > 0):
            raise InvalidMeasurementError(f"time_s={time_s!r}: use a positive number of seconds")
