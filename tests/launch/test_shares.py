"""Shares let all nodes finish together, and change only when a node's speed does."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest

from launch.errors import InvalidPlanError
from launch.gradient_sync.allreduce.rebalancer import Rebalancer
from launch.plan import Plan
from launch.shares import NodeLimits, StepTime, balance_batches, fit_step_time


def line(fixed_s: float, per_sample_s: float) -> StepTime:
    return StepTime(fixed_s=fixed_s, per_sample_s=per_sample_s)


def limits(
    min_batches: Sequence[int], max_batches: Sequence[int | None] | None = None
) -> list[NodeLimits]:
    pairs = zip(min_batches, max_batches or [None] * len(min_batches), strict=True)
    return [NodeLimits(min_batch=least, max_batch=most) for least, most in pairs]


def whole(multiples: Sequence[int]) -> list[NodeLimits]:
    """Nodes that take multiples alone."""
    return [NodeLimits(min_batch=multiple, multiple=multiple) for multiple in multiples]


def slowest_s(times: Sequence[StepTime], batches: Sequence[int]) -> float:
    return max(time.at(batch) for time, batch in zip(times, batches, strict=True))


def every_way(total: int, least: Sequence[int], most: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every way to deal out so many samples."""
    if len(most) == 1:
        if least[0] <= total <= most[0]:
            yield (total,)
        return
    for first in range(least[0], min(most[0], total) + 1):
        for rest in every_way(total - first, least[1:], most[1:]):
            yield (first, *rest)


def test_equal_nodes_get_equal_shares():
    assert balance_batches([line(0.1, 0.01)] * 4, 128) == (32, 32, 32, 32)


def test_node_of_twice_the_speed_gets_twice_the_samples():
    assert balance_batches([line(0, 0.01), line(0, 0.02)], 96) == (64, 32)


def test_node_with_more_to_do_in_every_step_gets_fewer_samples():
    assert balance_batches([line(0, 0.01), line(0.2, 0.01)], 100) == (60, 40)


def test_no_other_shares_are_faster():
    for seed in range(300):
        dice = random.Random(seed)
        nodes, total = dice.randint(1, 4), dice.randint(8, 24)
        times = [line(dice.choice([0, dice.random()]), dice.random() + 0.01) for _ in range(nodes)]
        least = [dice.randint(1, 2) for _ in times]
        max_batches = [dice.choice([None, dice.randint(6, 24)]) for _ in times]
        most = [total if limit is None else limit for limit in max_batches]
        if sum(most) < total:
            continue
        batches = balance_batches(times, total, limits(least, max_batches))
        assert sum(batches) == total, seed
        within = [low <= n <= high for low, n, high in zip(least, batches, most, strict=True)]
        assert all(within), seed
        least = [2] * nodes if 2 * nodes <= total else least
        shortest_s = min(slowest_s(times, way) for way in every_way(total, least, most))
        assert slowest_s(times, batches) == shortest_s, seed


def test_large_batches_are_dealt_so_that_no_sample_moved_makes_the_step_shorter():
    for seed in range(50):
        dice = random.Random(seed)
        count = dice.randint(2, 40)
        times = [line(dice.random(), dice.random() / 100 + 1e-4) for _ in range(count)]
        total = dice.randint(1000, 100_000)
        batches = balance_batches(times, total)
        assert sum(batches) == total, seed
        times_s = [time.at(n) for time, n in zip(times, batches, strict=True)]
        last = times_s.index(max(times_s))
        more_s = [time.at(n + 1) for time, n in zip(times, batches, strict=True)]
        del more_s[last]
        assert batches[last] <= 2 or min(more_s) >= times_s[last], seed


def test_each_node_gets_two_samples_where_there_are_enough():
    slow = [line(0, 0.001), line(0, 1.0), line(0, 1.0)]
    assert balance_batches(slow, 10) == (6, 2, 2)
    assert balance_batches(slow, 5) == (3, 1, 1)


def test_node_never_gets_less_than_its_plan_can_cut_up():
    assert balance_batches([line(0, 0.001), line(0, 1.0)], 16, limits([1, 4])) == (12, 4)
    plan = Plan(strategy="hybrid", node_batch=16, processes=4, replicas=2, micro_batches=4)
    assert NodeLimits.of_plan(plan).min_batch == 8


def test_shares_of_pipelines_are_whole_micro_batches():
    """The story: 128 samples were dealt 87 to 41 to two pipelines of 8 micro-batches, of which they
    could then make 3 and 1."""
    twice = [StepTime(fixed_s=0.0, per_sample_s=seconds) for seconds in (1.0, 2.1)]
    assert balance_batches(twice, 128, whole([8, 8])) == (88, 40)


def test_node_without_a_multiple_takes_the_rest_of_the_multiples():
    for seed in range(40):
        dice = random.Random(seed)
        units = [dice.choice([1, 2, 8]) for _ in range(4)] + [1]
        times = [StepTime(fixed_s=dice.random(), per_sample_s=0.1 + dice.random()) for _ in units]
        batch = dice.randint(sum(units) + 10, 300)
        shares = balance_batches(times, batch, whole(units))
        assert sum(shares) == batch, seed
        rests = [share % unit for share, unit in zip(shares, units, strict=True)]
        assert rests == [0] * len(units), seed
        free = balance_batches(times, batch, limits(units))
        multiple_s = max(time.per_sample_s * unit for time, unit in zip(times, units, strict=True))
        assert slowest_s(times, shares) <= slowest_s(times, free) + multiple_s, seed


@pytest.mark.parametrize(
    "units", [[2**40, 1], [2**40, 2**40], [2**40, 3, 2, 1], [2**40 - 1, 2**40 - 2, 1, 1]]
)
def test_any_multiples_are_shared_at_once(units):
    """The story: samples were dealt one by one, so that an imported plan with 2**40 micro-batches
    made a launch on several hosts and the page of the hosts wait for ever."""
    times = [line(0.1 * number, 0.01 * (1 + number)) for number in range(len(units))]
    total = 3 * sum(units) + 12345
    shares = balance_batches(times, total, whole(units))
    assert sum(shares) == total
    if units[-1] == 1:
        assert [share % unit for share, unit in zip(shares, units, strict=True)] == [0] * len(units)


def test_samples_are_dealt_one_by_one_beside_hundreds_of_micro_batches():
    """Four nodes are equal in pairs, and so are their shares."""
    times = [line(0, 0.05), line(0, 0.01)] * 2
    assert balance_batches(times, 1242, whole([1, 256] * 2)) == (109, 512, 109, 512)


def test_samples_that_take_next_to_nothing_are_shared_at_once():
    """A sample more does not change the sum of 1e30 s and 1e-30 s."""
    times = [line(1e30, 1e-30), line(1.0, 1e-40)]
    assert sum(balance_batches(times, 2**53)) == 2**53
    assert times[0].samples_within(2e30) == pytest.approx(1e12)


def test_full_node_beside_one_that_takes_ages_is_given_its_share_at_once():
    """The story: in the time of the slow node the quick one could do more samples than floats tell
    apart, and they were counted one by one."""
    times = [line(0, 1e-30), line(0, 1.0)]
    assert balance_batches(times, 1000, limits([1, 1], [10, None])) == (10, 990)


def test_share_is_no_multiple_where_no_other_node_can_take_the_rest():
    alike = [StepTime(fixed_s=0.0, per_sample_s=1.0)] * 2
    assert sum(balance_batches(alike, 61, whole([8, 8]))) == 61


def test_what_a_full_node_cannot_take_goes_to_the_others():
    times = [line(0, 0.01), line(0, 0.02), line(0, 0.02)]
    assert balance_batches(times, 100, limits([1, 1, 1], [30, None, None])) == (30, 35, 35)


@pytest.mark.parametrize(
    ("min_batches", "max_batches", "says"),
    [
        ([1, 1], [10, 20], "global_batch=64 and max_batches=10,20: use at most 30 samples"),
        ([60, 60], None, "use at least 120 samples, or fewer hosts"),
        ([4, 4], [3, 64], "use at least 8 samples, or fewer hosts"),
    ],
)
def test_batch_that_the_nodes_cannot_take_is_refused(min_batches, max_batches, says):
    with pytest.raises(InvalidPlanError, match=says):
        balance_batches([line(0, 0.01)] * 2, 64, limits(min_batches, max_batches))


def test_fewer_samples_than_nodes_are_refused():
    with pytest.raises(InvalidPlanError, match="use at least 3 samples"):
        balance_batches([line(0, 0.01)] * 3, 2)


def test_line_goes_through_its_points():
    fitted = fit_step_time([(32, 0.5 + 0.32), (128, 0.5 + 1.28)])
    assert (fitted.fixed_s, fitted.per_sample_s) == pytest.approx((0.5, 0.01))


def test_slow_steps_do_not_outweigh_quick_ones():
    """The errors are of one size in percent."""
    exact = line(0.1, 0.01)
    points = [(10, exact.at(10)), (100, exact.at(100)), (1000, 1.05 * exact.at(1000))]
    fitted = fit_step_time(points)
    assert [fitted.at(n) for n, _ in points] == pytest.approx([s for _, s in points], rel=0.06)


def test_single_point_and_a_line_from_below_zero_are_proportional():
    assert fit_step_time([(50, 1.0)]) == line(0, 0.02)
    assert fit_step_time([(50, 1.0), (100, 2.1)]).fixed_s == 0


def test_samples_that_seem_to_cost_nothing_still_cost_something():
    """Where a GPU is not full, both batches take the same time."""
    fitted = fit_step_time([(32, 0.1), (64, 0.1)])
    assert 0.05 < fitted.at(64) < 0.12
    assert fitted.at(64_000) > 10 * fitted.at(64)


@pytest.mark.parametrize("points", [[], [(0, 1.0)], [(4, 0.0)], [(4, float("nan"))]])
def test_points_that_say_nothing_are_refused(points):
    with pytest.raises(InvalidPlanError, match="points="):
        fit_step_time(points)


@pytest.mark.parametrize(
    "values", [(-1.0, 1.0), (0.0, 0.0), (float("nan"), 1.0), (0.0, -1.0), (0.0, 1e-99)]
)
def test_line_that_no_node_has_is_refused(values):
    with pytest.raises(InvalidPlanError, match=r"use a number"):
        line(*values)


def test_samples_within_a_time_are_the_most_that_fit():
    for seed in range(100):
        dice = random.Random(seed)
        time, limit_s = line(dice.random(), dice.random() / 50 + 1e-6), 2 * dice.random()
        samples = time.samples_within(limit_s)
        assert samples == 0 or time.at(samples) <= limit_s, seed
        assert time.at(samples + 1) > limit_s, seed


class Nodes:
    """Nodes whose speed a test sets, trained with the shares that a rebalancer gives."""

    def __init__(self, *speeds: float, noise: float = 0.0, total: int = 96) -> None:
        self.speeds = list(speeds)
        self.noise = noise
        self.dice = random.Random(1)
        self.believed = [line(0.05 / speed, 0.01 / speed) for speed in speeds]
        self.rebalancers = [
            Rebalancer(self.believed, balance_batches(self.believed, total)) for _ in self.speeds
        ]
        self.step = 0
        self.changes: list[tuple[int, tuple[int, ...]]] = []

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.step += 1
            batches = self.rebalancers[0].batches
            times_s = [
                (0.05 + 0.01 * n) / speed * (1 + self.noise * self.dice.gauss(0, 1))
                for n, speed in zip(batches, self.speeds, strict=True)
            ]
            answers = {rebalancer.add(times_s) for rebalancer in self.rebalancers}
            (answer,) = answers  # every rank comes to the same
            if answer is not None:
                self.changes.append((self.step, answer))


@pytest.mark.parametrize(("speed", "noise", "steps"), [(2, 0.02, 500), (1, 0.1, 1000)])
def test_noise_alone_moves_no_shares(speed, noise, steps):
    nodes = Nodes(1, speed, noise=noise)
    nodes.train(steps)
    assert nodes.changes == []


@pytest.mark.parametrize("slower", [0.96, 1.04])
def test_small_changes_move_no_shares(slower):
    nodes = Nodes(1, 1)
    nodes.speeds[1] = slower
    nodes.train(300)
    assert nodes.changes == []


def test_node_that_became_slow_gets_fewer_samples():
    nodes = Nodes(1, 1, noise=0.02)
    nodes.train(100)
    nodes.speeds[1] = 0.5
    nodes.train(100)
    (step, batches), *_ = nodes.changes
    assert step <= 150
    assert sum(batches) == 96
    assert batches[0] == pytest.approx(66, abs=2)


def test_node_that_recovers_gets_its_samples_back():
    nodes = Nodes(1, 1)
    nodes.speeds[0] = 0.5
    nodes.train(100)
    nodes.speeds[0] = 1
    nodes.train(100)
    assert nodes.changes[-1][1] == (48, 48)


def test_shares_change_at_most_once_in_fifty_steps():
    nodes = Nodes(1, 1, 1)
    for _ in range(60):
        nodes.speeds = [nodes.dice.uniform(0.3, 1) for _ in nodes.speeds]
        nodes.train(17)
    steps = [step for step, _ in nodes.changes]
    assert len(steps) > 5
    assert all(later - earlier >= 50 for earlier, later in pairwise(steps))


def test_first_steps_of_a_training_count_for_nothing():
    nodes = Nodes(1, 1)
    nodes.speeds[0] = 0.01
    nodes.train(3)
    nodes.speeds[0] = 1
    nodes.train(200)
    assert nodes.changes == []


def test_all_nodes_alike_in_being_slower_keep_their_shares():
    nodes = Nodes(1, 3)
    nodes.speeds = [0.8, 2.4]
    nodes.train(200)
    assert nodes.changes == []
    assert nodes.rebalancers[0].times[0].per_sample_s == pytest.approx(0.0125)


def test_shares_that_change_stay_between_minimum_and_maximum():
    times = [line(0, 0.01), line(0, 0.01)]
    rebalancer = Rebalancer(times, (32, 32), limits([1, 28], [40, 64]))
    answers = [rebalancer.add([0.32, 3.2]) for _ in range(60)]
    assert [answer for answer in answers if answer] == [(36, 28)]


def test_node_that_cannot_tell_its_times_is_left_as_believed():
    rebalancer = Rebalancer([line(0, 0.01), line(0, 0.01)], (32, 32))
    answers = [rebalancer.add([0.0, 0.64]) for _ in range(60)]
    assert [answer for answer in answers if answer] == [(43, 21)]
