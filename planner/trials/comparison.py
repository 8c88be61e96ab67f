"""Comparison of plans by turns side by side: what drifts slows both, and cancels out.

The unit is the turn and not the step: steps of one turn are disturbed alike, so that ten of
them say little more than one. Two plans are compared in the rounds in which both had a turn; where
others disturbed most of these, by the undisturbed turns that are nearest to each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from statistics import fmean
from typing import Protocol, Self

from launch.plan import Plan
from probes.timing import NORMAL_95, Interval, Measurement, student_quantile

_PRIOR_DEVIATION = 0.1
"""Standard deviation of the logarithm of the ratio of neighbouring turns before any is known:
measured on a virtual machine with 2 cores and nothing else on it."""

_PRIOR_PAIRS = 2
"""Pairs that this counts for."""

_ENOUGH_PAIRS = 8
"""Pairs that show the noise by themselves."""

_SHARED_PAIRS = 4
"""Pairs of its own plans that the noise of all pairs of a search counts for at most: plans differ
in how evenly they run. Found by simulation, `bench/trust.py`."""

_TIGHTEST_AT = 0.5
"""Parameter of the mixture: about an eighth of the number of pairs at which it is tightest."""

_ERROR = 0.05
"""Probability with which its interval may miss the truth."""

_MEDIAN_WIDTH = math.sqrt(math.pi / 2)
"""Standard deviation of the median of normal values over that of their mean, at most; of two values
both are the same."""

_LEAST_DEVIATION = 0.002
START_DEVIATION = 0.004
"""Standard deviation of the logarithm of a plan's speed between two starts of its processes: where
its memory lies, and which cores it shares a cache with, lasts as long as they do."""

TRIMMED = 0.2
"""Part of the pairs that is left out at either end."""

_DEPENDENCE, _TRIMMED_DEPENDENCE = 1.05, 1.2
"""Widen intervals a little: pairs that follow one another share some of what disturbs the machine,
so they tell less than as many of different times. And a plan that is chosen was lucky in its own,
which shows where turns that took long widen the interval no more: with 1.05, too, 91 of 100 held
the truth. Found by simulation, `bench/trust.py` and `bench/search.py`."""

_LEAST_CLEAN = 3
"""Pairs of turns that must be left where those that others disturbed are left out."""

_NEIGHBOURS = 2
"""Rounds between the turns of a pair at most: the machine drifts little meanwhile."""

_EQUAL = 0.01
"""Two plans are as fast as each other where they are shown to differ by no more."""


class Timed(Protocol):
    """A plan with the times of its turns: a trial's result, or a candidate."""

    @property
    def plan(self) -> Plan:
        """The plan."""

    @property
    def measurement(self) -> Measurement | None:
        """Its times."""


@dataclass(frozen=True, slots=True)
class _Turns:
    """Turns of a plan: its time per sample by round, and by how much others may have slowed it."""

    times_s: Mapping[int, float]
    most_slowed: Mapping[int, float]
    """In the rounds that others disturbed."""

    @classmethod
    def of(cls, result: Timed) -> Self:
        if (known := result.measurement) is None:
            return cls({}, {})
        times_s = zip(known.rounds, known.samples_s, strict=False)
        batch = result.plan.node_batch
        return cls({number: time_s / batch for number, time_s in times_s}, known.slowed_rounds())

    @property
    def clean(self) -> Set[int]:
        """Rounds in which nothing disturbed it."""
        return self.times_s.keys() - self.most_slowed.keys()

    def rounds_with(self, other: _Turns) -> list[tuple[int, int]]:
        """Give the rounds of its turns and the other's that say how both compare."""
        return telling_rounds(self.times_s.keys() & other.times_s.keys(), self.clean, other.clean)

    def logs_with(self, other: _Turns) -> list[float]:
        """Give the logarithm of the ratio of both times in these turns."""
        pairs = self.rounds_with(other)
        return [math.log(self.times_s[one] / other.times_s[two]) for one, two in pairs]

    def slowed_in(self, rounds: Sequence[int]) -> list[float]:
        """Give by how much others may have slowed it in each of some rounds."""
        return [self.most_slowed.get(number, 1.0) for number in rounds]


def telling_rounds(common: Set[int], clean: Set[int], others: Set[int]) -> list[tuple[int, int]]:
    """Give the pairs of turns that say how two plans compare, as the rounds of both.

    Turns that others disturbed are left out where at least half of the rounds, and three, are left;
    or else where three of the other turns have one of the other plan's near them.

    Args:
        common: Rounds in which both had a turn.
        clean: Rounds in which nothing disturbed the first one's.
        others: The same of the second one.
    """
    same = [(number, number) for number in sorted(common & clean & others)]
    if len(same) >= max(_LEAST_CLEAN, len(common) / 2):
        return same
    near = _nearest(common & clean, common & others)
    return near if len(near) >= _LEAST_CLEAN else [(number, number) for number in sorted(common)]


def _nearest(some: Set[int], others: Set[int]) -> list[tuple[int, int]]:
    """Pair numbers with the nearest of others, each once, the nearest pairs first."""
    shifts = range(-_NEIGHBOURS, _NEIGHBOURS + 1)
    near = ((abs(shift), one, one + shift) for one, shift in product(some, shifts))
    found: dict[int, int] = {}
    taken = set[int]()
    for _, one, other in sorted(near):
        if other in others and one not in found and other not in taken:
            found[one] = other
            taken.add(other)
    return sorted(found.items())


@dataclass(slots=True)
class PairNoise:
    """How much the ratio of neighbouring turns varies, learned from all pairs of a search."""

    _residuals: dict[str, Sequence[float]] = field(default_factory=dict)
    """Of each pair of plans: its logarithms, less their mean."""

    _prior_pairs: int = _PRIOR_PAIRS

    _usual: float | None = field(default=None, init=False, repr=False, compare=False)
    """Usual deviation, once it was asked for; ``None`` again after more was learned."""

    def learn(self, pair: str, logs: Sequence[float]) -> None:
        """Take in the logarithms of one pair of plans, in place of what was known of it."""
        self._usual = None
        centre = fmean(logs) if logs else 0.0
        self._residuals[pair] = [log - centre for log in logs]

    @classmethod
    def of_results(cls, results: Sequence[Timed]) -> Self:
        """Learn from all pairs of plans that had turns in the same rounds.

        What is believed before any is known counts only where there are few.
        """
        noise = cls(_prior_pairs=0)
        timed = [(result.plan, _Turns.of(result)) for result in results]
        in_round: dict[int, list[int]] = {}
        for index, (_, turns) in enumerate(timed):
            for number in turns.times_s:
                in_round.setdefault(number, []).append(index)
        # Few of a study's trials met, and it may have thousands: not every two are looked at.
        met = {pair for raced in in_round.values() for pair in combinations(raced, 2)}
        for first, second in sorted(met):
            (plan, one), (beside, other) = timed[first], timed[second]
            if plan != beside:  # stored while it raced, and again: the same turns twice
                noise.learn(f"{first} {second}", one.logs_with(other))
        if noise._pairs < _ENOUGH_PAIRS:
            noise._prior_pairs = _PRIOR_PAIRS
        return noise

    @property
    def deviation(self) -> float:
        """Standard deviation of the logarithm of one ratio."""
        return max(_LEAST_DEVIATION, math.sqrt(self._squares / self._degrees))

    @property
    def usual_deviation(self) -> float:
        """The same without the few turns that took much longer, where enough pairs are known."""
        if self._usual is None:
            self._usual = self._find_usual()
        return self._usual

    def _find_usual(self) -> float:
        if self._pairs < _ENOUGH_PAIRS:
            return self.deviation
        stretched = [
            residual * math.sqrt(len(residuals) / (len(residuals) - 1))
            for residuals in self._residuals.values()
            if len(residuals) > 1
            for residual in residuals
        ]
        squares = _sum_squares(_winsorise(stretched)) / ((1 - 2 * TRIMMED) * (len(stretched) - 1))
        return max(_LEAST_DEVIATION, math.sqrt(squares))

    @property
    def _pairs(self) -> int:
        return sum(max(0, len(residuals) - 1) for residuals in self._residuals.values())

    @property
    def _degrees(self) -> int:
        return self._prior_pairs + self._pairs

    @property
    def _squares(self) -> float:
        known = sum(residual**2 for one in self._residuals.values() for residual in one)
        return self._prior_pairs * _PRIOR_DEVIATION**2 + known

    def half_width(self, pairs: int) -> float:
        """Give the half width of an interval around the median of pairs, however often one looks.

        With a probability of 95 % the mean of the first n pairs is within a narrower one of the
        truth, for all n at once: Robbins' mixture of normal distributions, with a variance that is
        itself learned. The median, which one turn that took long does not decide, varies a little
        more. Infinite where so few pairs show nothing. Sources: Robbins, "Statistical methods
        related to the law of the iterated logarithm", 1970; Lai, "On confidence sequences", 1976;
        Wang and Ramdas, "Anytime-valid t-tests", 2023, https://arxiv.org/abs/2310.03722.
        """
        spread = (pairs + _TIGHTEST_AT) / _TIGHTEST_AT
        bound = (math.sqrt(spread) / _ERROR) ** (2 / (self._degrees + 1))
        if bound >= spread:
            return math.inf
        squares = max(self._squares, self._degrees * _LEAST_DEVIATION**2)
        of_mean = math.sqrt(squares * (bound - 1) / (pairs * (1 - bound / spread)))
        return of_mean * (_MEDIAN_WIDTH if pairs > 2 else 1.0)


def _winsorise(values: Sequence[float]) -> list[float]:
    """Draw the smallest and the largest ones in to the nearest of the others."""
    ordered = sorted(values)
    cut = math.floor(TRIMMED * len(ordered))
    low, high = ordered[cut], ordered[-1 - cut]
    return [min(max(value, low), high) for value in ordered]


def _sum_squares(values: Sequence[float]) -> float:
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values)


def pair_logs(slow: Timed, fast: Timed) -> list[float]:
    """Give the logarithm of the ratio of the times per sample in each of the `telling_rounds`.

    Above 0 where the second one is faster.
    """
    return _Turns.of(slow).logs_with(_Turns.of(fast))


def telling_turns_s(result: Timed) -> dict[int, float]:
    """Give the time per sample by round, without disturbed turns where enough others are left."""
    turns = _Turns.of(result)
    clean = turns.clean if len(turns.clean) >= _LEAST_CLEAN else turns.times_s.keys()
    return {number: time_s for number, time_s in turns.times_s.items() if number in clean}


def ratio_interval(
    logs: Sequence[float], *, starts: int = 1, noise: PairNoise | None = None
) -> Interval | None:
    """Give the ratio that logarithms of pairs show, with its 95 % interval.

    A trimmed mean, so that a single disturbed turn does not decide, with Student's interval from
    the winsorised variance (Yuen, "The two-sample trimmed t for unequal population variances",
    1974), widened by what another start of the processes would change. It is for a number of
    pairs that was fixed before. Few pairs show little of their own noise: what all pairs of the
    search have shown counts as a few more (Smyth, "Linear models and empirical Bayes methods",
    2004).

    Args:
        logs: Of the pairs.
        starts: How often both were started for them.
        noise: Of all pairs of the search, where these are at hand.

    Returns:
        ``None`` for fewer than two pairs.
    """
    count = len(logs)
    if count < 2:
        return None
    cut = math.floor(TRIMMED * count)
    inner = sorted(logs)[cut : count - cut]
    centre = fmean(inner)
    squares, degrees = _sum_squares(_winsorise(logs)), len(inner) - 1
    if noise is not None:
        # As many squares as so many more of winsorised pairs would have.
        squares += _SHARED_PAIRS * (noise.usual_deviation if cut else noise.deviation) ** 2
        degrees += _SHARED_PAIRS
    error = math.sqrt(squares / (len(inner) * degrees))
    half = math.hypot(
        (_TRIMMED_DEPENDENCE if cut else _DEPENDENCE) * student_quantile(degrees) * error,
        NORMAL_95 * START_DEVIATION * math.sqrt(2 / starts),
    )
    return Interval(
        median=math.exp(centre),
        low=math.exp(centre - half),
        high=math.exp(centre + half),
        count=count,
    )


def compare_results(slow: Timed, fast: Timed, *, noise: PairNoise | None = None) -> Interval | None:
    """Give how many times as fast the second plan is, from the rounds that both ran in."""
    return compare_pairs([(slow, fast)], noise=noise)


def compare_pairs(
    pairs: Iterable[tuple[Timed, Timed]], *, noise: PairNoise | None = None
) -> Interval | None:
    """Give how many times as fast a second plan is, from results of both with their own rounds.

    Other processes may slow one plan more than the other. Where too few rounds were undisturbed, so
    that all of them count, the interval reaches as far as that may have mattered.

    Args:
        pairs: Results of the first plan and of the second one, which ran in the same rounds.
        noise: See `ratio_interval`.
    """
    logs: list[float] = []
    slow_by: list[float] = []
    fast_by: list[float] = []
    starts = 0
    for slow, fast in pairs:
        if slow.measurement is None or fast.measurement is None:
            continue
        one, other = _Turns.of(slow), _Turns.of(fast)
        if rounds := one.rounds_with(other):
            logs += one.logs_with(other)
            slow_by += one.slowed_in([number for number, _ in rounds])
            fast_by += other.slowed_in([number for _, number in rounds])
            starts += min(slow.measurement.starts, fast.measurement.starts)
    ratio = ratio_interval(logs, starts=starts, noise=noise)
    if ratio is None:
        return None
    return replace(ratio, low=ratio.low / fmean(slow_by), high=ratio.high * fmean(fast_by))


def are_equal(ratio: Interval | None) -> bool:
    """Tell whether two plans are shown to be as fast as each other; ``None`` shows nothing."""
    return ratio is not None and ratio.low >= 1 - _EQUAL and ratio.high <= 1 + _EQUAL
