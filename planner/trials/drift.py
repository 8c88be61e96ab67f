"""Drift of a machine between rounds: taken out of times, and allowed for in stored rates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median, stdev

import numpy as np
from numpy.typing import NDArray

from launch.plan import Plan
from planner.trials.comparison import PairNoise, Timed, telling_turns_s
from planner.trials.result import TrialResult
from probes.timing import NORMAL_95, Interval

_PRIOR_DRIFT = 0.09
"""Standard deviation of the logarithm of the machine's speed before any is known: two runs of one
plan of 25 s each differ by 9 % on a virtual machine with nothing else on it."""

_PRIOR_ROUNDS = 12
"""Rounds that this counts for: the minutes of a search show little of how slow an hour later is."""

_TRIMMED_PASSES = 20

_HUBER_PASSES, _FAR, _LEAST_SPREAD = 20, 1.345, 0.01
"""Fits in which outliers are brought nearer, standard deviations from which on a turn is one (so
that without any the fit is as sure as 95 % of the turns), and the least that is taken for one."""

_OF_NORMAL = 1.4826
"""Standard deviation of a normal distribution / the median of its absolute values."""

_EXACT = 1e-9

_FEW = 3
"""Turns from which on their own spread is an interval."""


def fit_log_times(results: Sequence[Timed], *, trimmed: float = 0.0) -> dict[Plan, float]:
    """Give the logarithm of each plan's time per sample, with the machine's drift taken out.

    Args:
        results: Plans with their turns.
        trimmed: Part of a plan's turns that is left out at either end. It makes plans with few
            turns, of which none is left out, slower than others where some turns are much too long.
    """
    return _fit(results, trimmed)[0]


def remove_drift(results: Sequence[TrialResult]) -> list[TrialResult]:
    """Give results with how slow the machine was meanwhile, by all of them together.

    Two results are then on one level whenever they were measured. What a result was stored with is
    of its own moment, and the level of all moves while the machine does.
    """
    raced = [result for result in results if result.measurement and result.measurement.rounds]
    levels = fit_log_times(raced)
    return [_with_level(result, levels) for result in results]


def _with_level(result: TrialResult, levels: Mapping[Plan, float]) -> TrialResult:
    known = result.measurement
    if known is None or not known.rounds:
        return result
    raw = math.log(known.median_s / result.plan.node_batch)
    drift = math.exp(raw - levels[result.plan])
    return replace(result, measurement=replace(known, drift=drift))


def drift_deviation(results: Sequence[Timed]) -> float:
    """Give the standard deviation of the logarithm of the machine's speed from round to round."""
    drift = list(_fit(results)[1].values())
    squares = (len(drift) - 1) * stdev(drift) ** 2 if len(drift) > 1 else 0.0
    degrees = max(0, len(drift) - 1)
    return math.sqrt((_PRIOR_ROUNDS * _PRIOR_DRIFT**2 + squares) / (_PRIOR_ROUNDS + degrees))


def rate_interval(rate: Interval, drift: float, noise: PairNoise | None = None) -> Interval:
    """Widen the interval of a rate by how much the machine's own speed changes.

    A launch runs at another time than the trials: its rate is the plan's times the machine's of
    then, which is as far from the mean as the rounds of the search were.

    Args:
        rate: What the turns showed.
        drift: `drift_deviation` of the search.
        noise: Of all pairs of the search: one or two turns show nothing of their own spread.
    """
    if noise is not None and rate.count < _FEW:
        half = math.exp(NORMAL_95 * noise.deviation / math.sqrt(rate.count))
        rate = replace(rate, low=rate.median / half, high=rate.median * half)
    machine = NORMAL_95 * drift
    down = math.exp(-math.hypot(machine, math.log(rate.median / rate.low)))
    up = math.exp(math.hypot(machine, math.log(rate.high / rate.median)))
    return replace(rate, low=rate.median * down, high=rate.median * up)


def _fit(
    results: Sequence[Timed], trimmed: float = 0.0
) -> tuple[dict[Plan, float], dict[int, float]]:
    """Fit the time of a turn as that of its plan times that of its round, by least squares.

    One turn that took much longer hardly counts. Only a chain of others may connect two plans of a
    race, as one incumbent follows another: fits of plans and rounds in alternation hardly get along
    it. They do no more than trim.

    Returns:
        Logarithms of the time per sample by plan, and of the machine's slowness by round, whose
        median is 0. Plans of races without a common round keep their own level.
    """
    turns: dict[Plan, dict[int, float]] = {}
    for result in results:
        logs = {number: math.log(time_s) for number, time_s in telling_turns_s(result).items()}
        turns.setdefault(result.plan, {}).update(logs)
    plans = [plan for plan, logs in turns.items() if logs]
    if not plans:
        return {}, {}
    numbers = sorted({number for plan in plans for number in turns[plan]})
    log_s = np.array([log for plan in plans for log in turns[plan].values()])
    plan_of = np.repeat(np.arange(len(plans)), [len(turns[plan]) for plan in plans])
    round_of = np.searchsorted(numbers, [number for plan in plans for number in turns[plan]])
    levels = np.array([median(turns[plan].values()) for plan in plans])
    among_others = _invert(plan_of, round_of)
    for _ in range(_HUBER_PASSES):
        rest = log_s - levels[plan_of]
        slower = np.bincount(plan_of, rest - _means(round_of, rest)[round_of])
        levels += among_others @ slower
        drift = _means(round_of, log_s - levels[plan_of])
        log_s = _without_outliers(log_s, levels[plan_of] + drift[round_of])
    for _ in range(_TRIMMED_PASSES if trimmed else 1):
        drift = _means(round_of, log_s - levels[plan_of])
        drift -= np.median(drift)
        levels = _means(plan_of, log_s - drift[round_of], trimmed)
    return (
        dict(zip(plans, levels.tolist(), strict=True)),
        dict(zip(numbers, drift.tolist(), strict=True)),
    )


def _without_outliers(
    log_s: NDArray[np.float64], expected: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Bring turns that are far from what is expected as near as others are.

    One that took twice as long tells nothing of its plan. Source: Huber, "Robust estimation of a
    location parameter", 1964.
    """
    rest = log_s - expected
    off = np.abs(rest[np.abs(rest) > _EXACT])  # a plan alone in its rounds is where it is expected
    spread = max(_LEAST_SPREAD, _OF_NORMAL * float(np.median(off))) if len(off) else _LEAST_SPREAD
    return np.asarray(expected + np.clip(rest, -_FAR * spread, _FAR * spread), dtype=np.float64)


def _invert(plan_of: NDArray[np.intp], round_of: NDArray[np.intp]) -> NDArray[np.float64]:
    """Invert the normal equations of plans, without the rounds, which are as slow as turns say.

    What it gives are the smallest shifts: races without a common round keep their level.

    Args:
        plan_of: Number of each turn's plan.
        round_of: Number of its round.
    """
    seen = np.zeros((plan_of.max() + 1, round_of.max() + 1))
    seen[plan_of, round_of] = 1.0
    among_others = np.diag(seen.sum(axis=1)) - (seen / seen.sum(axis=0)) @ seen.T
    return np.asarray(np.linalg.pinv(among_others, hermitian=True), dtype=np.float64)


def _means(
    group_of: NDArray[np.intp], values: NDArray[np.float64], trimmed: float = 0.0
) -> NDArray[np.float64]:
    """Give the mean of each group of values, without some of the smallest and the largest."""
    counts = np.bincount(group_of)
    order = np.lexsort((values, group_of))
    place = np.arange(len(values)) - np.repeat(np.cumsum(counts) - counts, counts)
    cut, most = (np.repeat(each, counts) for each in (np.floor(trimmed * counts), counts))
    kept = order[(place >= cut) & (place < most - cut)]
    return np.bincount(group_of[kept], values[kept]) / np.bincount(group_of[kept])
