"""Deviation of a plan's speed from one start of its processes to the next, by its turns."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from _block import BenchError
from numpy.typing import NDArray

from planner.trials.result import TrialResult
from probes.timing import Interval

_DRAWS = 200_000

Times = NDArray[np.float64]


def times_of_starts(results: Sequence[TrialResult]) -> Times:
    """Give the logarithms of turns: a row for each start, a column for each round.

    Args:
        results: Of a race of one plan with itself, started once in each.

    Raises:
        BenchError: They did not fit into memory at once, so that each turn was a start.
    """
    measured = [result.measurement for result in results if result.measurement]
    if any(one.starts > 1 for one in measured):
        raise BenchError(f"{len(results)} starts need too much memory: use fewer --at-once")
    return np.log([one.samples_s for one in measured])


def deviation_of_starts(groups: Sequence[Times]) -> Interval:
    """Give the standard deviation between starts, with its 95 % interval.

    The variance of turns is that between rounds, which the starts of a group share, that between
    starts, and the rest: ``MS_starts`` is of ``rest + rounds * between`` and ``MS_rest`` of
    ``rest`` (analysis of variance in two ways without repetition). The interval holds the middle
    95 % of what the two leave possible of ``between``. Source: Weerahandi, "Generalized confidence
    intervals", 1993. Turns of a start that are alike for another reason, such as noise that lasts
    longer than a round, count as between starts: it is an upper estimate.
    """
    squares, degrees = np.zeros(2), np.zeros(2)
    rounds = groups[0].shape[1]
    for logs in groups:
        starts = logs.mean(axis=1, keepdims=True)
        rest = logs - starts - logs.mean(axis=0, keepdims=True) + logs.mean()
        squares += rounds * np.sum((starts - logs.mean()) ** 2), np.sum(rest**2)
        degrees += len(logs) - 1, (len(logs) - 1) * (rounds - 1)
    between, rest = squares / degrees
    draw = np.random.default_rng(0)
    possible = [squares[i] / draw.chisquare(degrees[i], _DRAWS) for i in range(2)]
    low, high = np.quantile((possible[0] - possible[1]) / rounds, (0.025, 0.975))
    found = [math.sqrt(max(0.0, float(v))) for v in ((between - rest) / rounds, low, high)]
    return Interval(median=found[0], low=found[1], high=found[2], count=sum(map(len, groups)))
