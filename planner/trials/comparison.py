"""Comparison of plans by turns side by side: what drifts slows both, and cancels out.

The unit is the turn and not the step: steps of one turn share the machine's mood, so that ten of
them say little more than one. Two plans are compared in the rounds in which both had a turn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median, stdev
from typing import Protocol

from launch.plan import Plan
from probes.timing import Interval, Measurement, student_quantile

_PRIOR_DEVIATION = 0.1
"""Standard deviation of the logarithm of the ratio of neighbouring turns before any is known:
measured on a virtual machine with 2 cores and nothing else on it."""

_PRIOR_PAIRS = 2
"""Pairs that this counts for."""

_TIGHTEST_AT = 0.5
"""Parameter of the mixture: about an eighth of the number of pairs at which it is tightest."""

_LEAST_DEVIATION = 0.002
_START_DEVIATION = 0.004
"""Standard deviation of the logarithm of a plan's speed between two starts of its processes: where
its memory lies, and which cores it shares a cache with, lasts as long as they do."""

_TRIMMED = 0.2
"""Part of the pairs that is left out at either end."""

_PRIOR_DRIFT = 0.09
"""Standard deviation of the logarithm of the machine's speed before any is known: two runs of one
plan of 25 s each differ by 9 % on a virtual machine with nothing else on it."""

_PRIOR_ROUNDS = 12
"""Rounds that this counts for: the minutes of a search show little of how slow an hour later is."""

_FITTING_PASSES = 20
_NORMAL_95 = 1.96

_DEPENDENCE = 1.05
"""Widens intervals a little: pairs that follow one another share part of the machine's mood, so
they tell less than as many of different times. Found by simulation."""

EQUAL = 0.01
"""Two plans are as fast as each other where they are shown to differ by no more."""


class Timed(Protocol):
    """A plan with the times of its turns: a trial's result, or a candidate."""

    @property
    def plan(self) -> Plan:
        """The plan."""

    @property
    def measurement(self) -> Measurement | None:
        """Its times."""


@dataclass(slots=True)
class PairNoise:
    """How much the ratio of neighbouring turns varies, learned from all pairs of a search."""

    _squares: float = _PRIOR_PAIRS * _PRIOR_DEVIATION**2
    _degrees: int = _PRIOR_PAIRS
    _known: dict[str, tuple[float, int]] = field(default_factory=dict)

    def learn(self, pair: str, logs: Sequence[float]) -> None:
        """Take in the logarithms of one pair of plans, in place of what was known of it."""
        squares, degrees = self._known.pop(pair, (0.0, 0))
        self._squares, self._degrees = self._squares - squares, self._degrees - degrees
        if len(logs) > 1:
            centre = fmean(logs)
            found = (sum((log - centre) ** 2 for log in logs), len(logs) - 1)
            self._known[pair] = found
            self._squares, self._degrees = self._squares + found[0], self._degrees + found[1]

    @property
    def deviation(self) -> float:
        """Standard deviation of the logarithm of one ratio."""
        return max(_LEAST_DEVIATION, math.sqrt(self._squares / self._degrees))

    def half_width(self, pairs: int, *, error: float = 0.05) -> float:
        """Give the half width of an interval that holds however often one looks at it.

        With probability ``1 - error`` the mean of the first n pairs is within it of the truth, for
        all n at once: Robbins' mixture of normal distributions, with a variance that is itself
        learned. Infinite where so few pairs show nothing. Sources: Robbins, "Statistical methods
        related to the law of the iterated logarithm", 1970; Lai, "On confidence sequences", 1976;
        Wang and Ramdas, "Anytime-valid t-tests", 2023, https://arxiv.org/abs/2310.03722.
        """
        spread = (pairs + _TIGHTEST_AT) / _TIGHTEST_AT
        bound = (math.sqrt(spread) / error) ** (2 / (self._degrees + 1))
        if bound >= spread:
            return math.inf
        squares = max(self._squares, self._degrees * _LEAST_DEVIATION**2)
        return math.sqrt(squares * (bound - 1) / (pairs * (1 - bound / spread)))


def pair_logs(slow: Timed, fast: Timed) -> list[float]:
    """Give the logarithm of the ratio of the times per sample in each round that both ran in.

    Above 0 where the second one is faster.
    """
    times = turn_times_s(slow)
    return [
        math.log(times[number] / time_s)
        for number, time_s in turn_times_s(fast).items()
        if number in times
    ]


def turn_times_s(result: Timed) -> dict[int, float]:
    """Give the time per sample of each round."""
    if (known := result.measurement) is None:
        return {}
    batch = result.plan.node_batch
    return {n: time_s / batch for n, time_s in zip(known.rounds, known.samples_s, strict=False)}


def ratio_interval(logs: Sequence[float], *, starts: int = 1) -> Interval | None:
    """Give the ratio that logarithms of pairs show, with its 95 % interval.

    A trimmed mean, so that a single disturbed turn does not decide, with Student's interval from
    the winsorised variance (Yuen, "The two-sample trimmed t for unequal population variances",
    1974), widened by what another start of the processes would change. It is for a number of
    pairs that was fixed before.

    Args:
        logs: Of the pairs.
        starts: How often both were started for them.

    Returns:
        ``None`` for fewer than two pairs.
    """
    count = len(logs)
    if count < 2:
        return None
    ordered = sorted(logs)
    cut = math.floor(_TRIMMED * count)
    inner = ordered[cut : count - cut]
    winsorised = [min(max(log, inner[0]), inner[-1]) for log in ordered]
    centre, mean = fmean(inner), fmean(winsorised)
    squares = sum((log - mean) ** 2 for log in winsorised)
    error = math.sqrt(squares / (len(inner) * (len(inner) - 1))) if len(inner) > 1 else math.inf
    half = math.hypot(
        _DEPENDENCE * student_quantile(len(inner) - 1) * error,
        _NORMAL_95 * _START_DEVIATION * math.sqrt(2 / starts),
    )
    return Interval(
        median=math.exp(centre),
        low=math.exp(centre - half),
        high=math.exp(centre + half),
        count=count,
    )


def compare_results(slow: Timed, fast: Timed) -> Interval | None:
    """Give how many times as fast the second plan is, from the rounds that both ran in."""
    if slow.measurement is None or fast.measurement is None:
        return None
    starts = min(slow.measurement.starts, fast.measurement.starts)
    return ratio_interval(pair_logs(slow, fast), starts=starts)


def are_equal(ratio: Interval) -> bool:
    """Tell whether two plans are shown to be as fast as each other."""
    return ratio.low >= 1 - EQUAL and ratio.high <= 1 + EQUAL


def fit_log_times(results: Sequence[Timed]) -> dict[str, float]:
    """Give the logarithm of each plan's time per sample, with the machine's drift taken out."""
    return _fit(results)[0]


def drift_deviation(results: Sequence[Timed]) -> float:
    """Give the standard deviation of the logarithm of the machine's speed from round to round."""
    drift = list(_fit(results)[1].values())
    squares = (len(drift) - 1) * stdev(drift) ** 2 if len(drift) > 1 else 0.0
    degrees = max(0, len(drift) - 1)
    return math.sqrt((_PRIOR_ROUNDS * _PRIOR_DRIFT**2 + squares) / (_PRIOR_ROUNDS + degrees))


def rate_interval(rate: Interval, drift: float) -> Interval:
    """Widen the interval of a rate by how much the machine's own speed changes.

    A launch runs at another time than the trials: its rate is the plan's times the machine's of
    then, which is as far from the mean as the rounds of the search were.

    Args:
        rate: What the turns showed.
        drift: `drift_deviation` of the search.
    """
    machine = _NORMAL_95 * drift
    down = math.exp(-math.hypot(machine, math.log(rate.median / rate.low)))
    up = math.exp(math.hypot(machine, math.log(rate.high / rate.median)))
    return replace(rate, low=rate.median * down, high=rate.median * up)


def _fit(results: Sequence[Timed]) -> tuple[dict[str, float], dict[int, float]]:
    """Fit the time of a turn as that of its plan times that of its round, by turns.

    Returns:
        Logarithms of the time per sample by plan, and of the machine's slowness by round, whose
        median is 0. Plans of races without a common round keep their own level.
    """
    turns: dict[str, dict[int, float]] = {}
    for result in results:
        logs = {number: math.log(time_s) for number, time_s in turn_times_s(result).items()}
        turns.setdefault(repr(result.plan), {}).update(logs)
    levels = {plan: median(logs.values()) for plan, logs in turns.items() if logs}
    drift: dict[int, float] = {}
    for _ in range(_FITTING_PASSES if levels else 0):
        of_round: dict[int, list[float]] = {}
        for plan, level in levels.items():
            for number, log in turns[plan].items():
                of_round.setdefault(number, []).append(log - level)
        centre = median(fmean(found) for found in of_round.values())
        drift = {number: fmean(found) - centre for number, found in of_round.items()}
        levels = {
            plan: fmean(log - drift[number] for number, log in turns[plan].items())
            for plan in levels
        }
    return levels, drift
