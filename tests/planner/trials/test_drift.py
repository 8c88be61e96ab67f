"""Drift of a machine between rounds: plans that ran at different times on one level."""

from __future__ import annotations

import math

import pytest

from planner.trials.comparison import PairNoise
from planner.trials.drift import drift_deviation, fit_log_times, rate_interval, remove_drift
from probes.timing import Interval
from tests.planner.trials.raced_turns import beside_others, finished, turns


def test_times_of_plans_that_ran_in_different_rounds_are_put_on_one_level():
    """The second plan ran while the machine was half as fast: it is the faster one."""
    speed = {1: 1.0, 2: 1.0, 3: 2.0, 4: 2.0}
    incumbent = turns(1, dict(speed))
    early = turns(2, {1: 2 * 0.9, 2: 2 * 0.9})
    late = turns(4, {3: 4 * 0.8 * 2, 4: 4 * 0.8 * 2})
    levels = fit_log_times([incumbent, early, late])
    base = levels[incumbent.plan]
    assert math.exp(levels[early.plan] - base) == pytest.approx(0.9)
    assert math.exp(levels[late.plan] - base) == pytest.approx(0.8)


def test_plans_are_put_on_one_level_along_a_chain_of_incumbents_however_long():
    """The story: the machine slowed down, and the last of four seemed 15 % slower than it was."""
    chain = [
        turns(batch, {number: batch * (1 + 0.02 * number) for number in range(first, first + 12)})
        for batch, first in ((1, 1), (2, 11), (4, 21), (8, 31))
    ]
    first, *others = fit_log_times(chain).values()
    assert others == pytest.approx([first] * 3)


def test_races_without_a_common_round_keep_their_own_level():
    levels = fit_log_times([turns(1, {1: 1.0, 2: 1.0}), turns(2, {7: 8.0, 8: 8.0})])
    assert sorted(map(math.exp, levels.values())) == pytest.approx([1.0, 4.0], rel=0.5)


def test_disturbed_turns_do_not_make_a_plan_slower_where_others_are_left():
    disturbed = beside_others(2.0, 6.0, quiet=range(0, 40, 8))
    beside = turns(2, dict.fromkeys(range(40), 2.0))
    slow, fast = fit_log_times([disturbed, beside], trimmed=0.2).values()
    assert math.exp(slow - fast) == pytest.approx(2.0)


def test_one_turn_that_took_twice_as_long_hardly_moves_those_that_only_raced_beside_it():
    """The story: the first of two plans had one such turn, and the second seemed 6 % faster than
    the plans of earlier rounds, where it was 11 % slower."""
    quiet = [1.0, 1.02, 0.99, 1.01, 0.98, 1.0, 1.02, 0.99, 1.01, 0.98]
    first = dict(enumerate(quiet))
    first[8] *= 2
    later = {n: 2 * 1.11 * quiet[n] * (1 + 0.02 * (-1) ** n) for n in (6, 7, 8, 9)}
    levels = list(fit_log_times([turns(1, first), turns(2, later)]).values())
    assert math.exp(levels[1] - levels[0]) == pytest.approx(1.11, rel=0.03)


def test_drift_of_the_machine_is_learned_from_its_rounds():
    steady = [turns(1, dict.fromkeys(range(500), 1.0))]
    wandering = [turns(1, {number: 1.0 + 0.3 * (number % 2) for number in range(500)})]
    assert drift_deviation(steady) < 0.02
    assert 0.1 < drift_deviation(wandering) < 0.2


def test_results_stored_at_different_times_are_ranked_as_turns_side_by_side_rank_them():
    """What each was stored with was of its own moment: by that the slower plan was the faster."""
    speed = {1: 1.0, 2: 1.0, 3: 1.6, 4: 1.6, 5: 1.6, 6: 1.6}
    incumbent = finished(1, speed)
    slower = finished(2, {number: 2 * 1.06 * speed[number] for number in (1, 2)})
    faster = finished(4, {number: 4 * 0.95 * speed[number] for number in (5, 6)}, drift=1.4)
    before = {r.plan.node_batch: r.throughput_samples_per_s().median for r in (slower, faster)}
    assert before[2] > before[4]
    found = [r.throughput_samples_per_s().median for r in remove_drift([incumbent, slower, faster])]
    assert found[1] / found[0] == pytest.approx(1 / 1.06)
    assert found[2] / found[0] == pytest.approx(1 / 0.95)


def test_trials_without_turns_keep_what_they_were_stored_with():
    alone = finished(1, {})
    assert remove_drift([alone]) == [alone]


@pytest.mark.parametrize("turns_of_rate", [1, 2])
def test_rate_of_one_or_two_turns_has_the_noise_of_the_search(turns_of_rate):
    """It was said to be half to twice as high, whatever the other plans had shown."""
    unknown = Interval(median=20.0, low=10.0, high=40.0, count=turns_of_rate)
    noise = PairNoise()
    noise.learn("a pair", [0.05, -0.05] * 20)
    known = rate_interval(unknown, 0.03, noise)
    assert 17 < known.low < 19 < 21 < known.high < 23.5
    assert rate_interval(unknown, 0.03).low < 10.1


def test_rate_of_more_turns_has_their_own_spread():
    seen = Interval(median=20.0, low=19.0, high=21.0, count=3)
    noise = PairNoise()
    noise.learn("a pair", [0.5, -0.5] * 20)
    assert rate_interval(seen, 0.03, noise) == rate_interval(seen, 0.03)
