"""Choice of nodes from recorded times and links."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

import pytest

from launch.errors import InvalidPlanError
from launch.shares import StepTime
from planner.cluster.node_choice import TIE, choose_nodes
from planner.cluster.prediction import predict
from planner.cluster.sync_cost import EARLY_READY, FIRST_READY
from tests.planner.cluster.alexnet_nodes import ALEXNET_BYTES, GIGABIT, network, node, sum_time


def gains(verdict) -> dict[str, float]:
    return {gain.host: gain.gain for gain in verdict.gains}


def test_two_equal_nodes_train_nearly_twice_as_fast_where_computing_hides_the_exchange():
    alone = predict([node(1)], None, ALEXNET_BYTES)
    both = choose_nodes([node(1), node(2)], network(2), ALEXNET_BYTES).chosen
    assert both.hosts == ("n1", "n2")
    assert both.batches == (128, 128)
    gain = both.throughput_samples_per_s / alone.throughput_samples_per_s
    assert 1.85 < gain < 2.0


def test_step_that_begins_early_hides_the_network_behind_its_forward_pass_too():
    late = [node(1), node(2)]
    early = [replace(one, first_ready=EARLY_READY) for one in late]
    exchange = network(2, GIGABIT / 3)  # takes about as long as computing
    gain = (
        choose_nodes(early, exchange, ALEXNET_BYTES).chosen.throughput_samples_per_s
        / choose_nodes(late, exchange, ALEXNET_BYTES).chosen.throughput_samples_per_s
    )
    assert 1.15 < gain < 1.4
    mixed = predict([early[0], late[1]], exchange, ALEXNET_BYTES)
    assert mixed.step_s == predict(late, exchange, ALEXNET_BYTES).step_s


def test_fast_node_takes_more_of_the_batch():
    chosen = choose_nodes([node(1, 4), node(2, 1)], network(2, 1e10), ALEXNET_BYTES).chosen
    assert chosen.batches[0] == pytest.approx(4 * chosen.batches[1], rel=0.05)
    assert chosen.global_batch == 256


def test_one_node_is_fastest_on_a_slow_link():
    verdict = choose_nodes([node(1, 2), node(2)], network(2, 1.2e6), ALEXNET_BYTES)
    assert verdict.chosen.hosts == ("n1",)
    assert gains(verdict)["n1"] is None
    assert gains(verdict)["n2"] < -0.5


def test_node_behind_a_slow_link_is_left_out():
    slow = {("n1", "n3"): 5e6, ("n2", "n3"): 5e6}
    verdict = choose_nodes([node(1), node(2), node(3)], network(3, 1e9, slow), ALEXNET_BYTES)
    assert verdict.chosen.hosts == ("n1", "n2")
    assert gains(verdict)["n3"] < -0.3
    assert gains(verdict)["n1"] == pytest.approx(gains(verdict)["n2"])
    assert gains(verdict)["n2"] > 0.8


def test_slow_node_that_would_only_cost_the_fixed_part_of_its_step_is_left_out():
    slow = node(3, 0.01, time=StepTime(fixed_s=20, per_sample_s=1.0), tuned_batch=8)
    verdict = choose_nodes([node(1), node(2), slow], network(3, 1e9), ALEXNET_BYTES)
    assert verdict.chosen.hosts == ("n1", "n2")
    assert gains(verdict)["n3"] < -0.5


def test_node_that_adds_less_than_can_be_predicted_is_left_out():
    """A tie goes to the simpler: there is less that can fail."""
    weak = node(2, 0.01, tuned_batch=2, time=StepTime(fixed_s=0, per_sample_s=2.5))
    verdict = choose_nodes([node(1), weak], network(2, 1e10), 1000)
    assert 0 < gains(verdict)["n2"] < TIE
    assert verdict.chosen.hosts == ("n1",)


def test_all_hosts_are_used_where_the_user_says_so():
    verdict = choose_nodes([node(1, 2), node(2)], network(2, 1.2e6), ALEXNET_BYTES, all_hosts=True)
    assert verdict.chosen.hosts == ("n1", "n2")
    assert verdict.best.hosts == ("n1",)
    assert gains(verdict)["n2"] < -0.5


def test_global_batch_of_the_user_is_kept_for_every_subset():
    verdict = choose_nodes([node(1), node(2, 2), node(3)], network(3, 1e9), 1000, global_batch=96)
    assert {found.global_batch for found in verdict.predictions} == {96}
    assert verdict.larger is None


def test_small_global_batch_is_not_spread_over_a_slow_network():
    verdict = choose_nodes([node(1), node(2)], network(2), ALEXNET_BYTES, global_batch=16)
    assert verdict.chosen.hosts == ("n1",)


def test_batch_does_not_grow_by_itself_but_what_a_larger_one_gives_is_told():
    verdict = choose_nodes([node(1), node(2)], network(2, GIGABIT / 4), ALEXNET_BYTES)
    assert verdict.chosen.global_batch == 256
    assert verdict.larger.global_batch == 512
    assert verdict.larger.throughput_samples_per_s > 1.1 * verdict.chosen.throughput_samples_per_s


def test_larger_batch_that_no_memory_holds_is_not_told_of():
    nodes = [node(1, max_batch=150), node(2, max_batch=150)]
    assert choose_nodes(nodes, network(2, GIGABIT / 4), ALEXNET_BYTES).larger is None


def test_full_node_leaves_the_rest_of_the_users_batch_to_the_others():
    nodes = [node(1, 10, max_batch=140), node(2)]
    chosen = choose_nodes(nodes, network(2, 1e10), 1000, global_batch=256, all_hosts=True).chosen
    assert chosen.batches == (140, 116)


def test_full_node_does_not_wait_for_what_is_left_to_the_others():
    """A GPU takes no more than it was tried with; the batch that is left is a CPU's for minutes."""
    nodes = [node(1, 10, max_batch=140), node(2)]
    verdict = choose_nodes(nodes, network(2, 1e10), 1000)
    assert verdict.chosen.batches == (140, pytest.approx(14, abs=2))
    assert gains(verdict)["n2"] == pytest.approx(0.1, abs=0.03)


def test_time_of_a_full_node_that_takes_ages_is_not_counted_in_samples_of_a_quick_one():
    """The story: they are more than floats tell apart, and were counted one by one, for ever."""
    slow, quick = (
        node(
            number,
            time=StepTime(fixed_s=0, per_sample_s=sample_s),
            tuned_batch=batch,
            max_batch=batch,
        )
        for number, sample_s, batch in ((1, 1.0, 4), (2, 1e-30, 10))
    )
    assert predict([slow, quick], None, 1000).batches == (2, 9)


def test_batch_that_no_subset_can_take_is_refused():
    nodes = [node(1, max_batch=100), node(2, max_batch=100)]
    with pytest.raises(InvalidPlanError, match="use at most 200 samples"):
        choose_nodes(nodes, network(2), 1000, global_batch=1000)


def test_subsets_that_cannot_take_the_batch_are_passed_over():
    nodes = [node(1, max_batch=100), node(2, max_batch=100), node(3, max_batch=100)]
    verdict = choose_nodes(nodes, network(3, 1.2e6), ALEXNET_BYTES, global_batch=150)
    assert len(verdict.chosen.hosts) == 2
    assert gains(verdict)["n1"] is None  # without it, the batch would not fit


def test_without_a_measured_network_all_nodes_are_used_and_none_is_judged():
    verdict = choose_nodes([node(1), node(2)], None, ALEXNET_BYTES)
    assert verdict.chosen.hosts == ("n1", "n2")
    assert not verdict.knows_network
    assert verdict.gains == ()
    sums = (sum_time(message_bytes=4 * 2**20, time_s=0.1),)
    unsized = choose_nodes([node(1), node(2)], network(2, sums=sums), None)
    assert not unsized.knows_network
    assert unsized.chosen.wire_s == 0.0
    assert choose_nodes([node(1)], None, None).knows_network


@pytest.mark.parametrize("seed", range(30))
def test_no_subset_and_no_shares_beat_the_chosen_ones(seed):
    dice = random.Random(seed)
    count = dice.randint(2, 4)
    nodes = [
        node(
            number,
            time=StepTime(fixed_s=dice.random(), per_sample_s=dice.uniform(0.01, 0.3)),
            tuned_batch=dice.choice([2, 4]),
            cores=dice.choice([None, 1, 4]),
            first_ready=dice.choice([EARLY_READY, FIRST_READY]),
        )
        for number in range(1, count + 1)
    ]
    gradient_bytes, total = dice.choice([10**4, 10**7, 10**8]), dice.choice([8, 12])
    exchange = network(count, dice.choice([1e7, 1e8, 1e9]))
    verdict = choose_nodes(nodes, exchange, gradient_bytes, global_batch=total)
    best = 0.0
    for size in range(1, count + 1):
        for subset in combinations(nodes, size):
            hosts = [one.host for one in subset]
            for batches in ways(total, size):
                best = max(best, total / step_s(subset, hosts, batches, exchange, gradient_bytes))
    found = verdict.chosen.throughput_samples_per_s
    assert (1 - TIE) * best <= found * (1 + 1e-9) <= best * (1 + 2e-9)


def ways(total: int, parts: int):
    """Every way to deal out samples, two a node at least."""
    if parts == 1:
        yield (total,)
        return
    for first in range(2, total - 2 * (parts - 1) + 1):
        for rest in ways(total - first, parts - 1):
            yield (first, *rest)


def step_s(nodes, hosts, batches, exchange, gradient_bytes) -> float:
    """The formula, written once more."""
    computing = [one.time.at(n) for one, n in zip(nodes, batches, strict=True)]
    if len(nodes) == 1:
        return computing[0]
    busy = [
        s + (exchange.overhead_s(one.host, hosts, one.cores, gradient_bytes) if one.cores else 0.0)
        for one, s in zip(nodes, computing, strict=True)
    ]
    wire_s = exchange.wire_s(hosts, gradient_bytes)
    update_s = exchange.update_s(gradient_bytes)
    first_s = max(one.first_ready * s for one, s in zip(nodes, computing, strict=True))
    longest = max(*busy, first_s + wire_s + update_s)
    return longest + exchange.exposed_s(hosts, gradient_bytes)


@pytest.mark.parametrize("seed", range(10))
def test_faster_network_or_node_never_makes_the_job_slower(seed):
    dice = random.Random(seed)
    speeds = [dice.uniform(0.2, 4) for _ in range(3)]
    nodes = [node(i + 1, speed) for i, speed in enumerate(speeds)]
    rate = dice.choice([3e6, 3e7, 3e8])
    before = choose_nodes(nodes, network(3, rate), ALEXNET_BYTES).best
    after = choose_nodes(nodes, network(3, 2 * rate), ALEXNET_BYTES).best
    min_batch = (1 - TIE) * before.throughput_samples_per_s
    assert after.throughput_samples_per_s >= min_batch
    faster = [node(1, 1.5 * speeds[0]), *nodes[1:]]
    assert (
        choose_nodes(faster, network(3, rate), ALEXNET_BYTES).best.throughput_samples_per_s
        >= min_batch
    )


def test_more_nodes_than_can_be_tried_in_every_way_are_chosen_from_too():
    nodes = [node(number, 1 + number % 3) for number in range(1, 21)]
    slow = {
        (one, other): 1e5
        for one, other in combinations([f"n{number}" for number in range(1, 21)], 2)
        if "n7" in (one, other)
    }
    verdict = choose_nodes(nodes, network(20, 1e9, slow), ALEXNET_BYTES)
    assert set(verdict.chosen.hosts) == {one.host for one in nodes} - {"n7"}
    assert gains(verdict)["n7"] < -0.5


def test_exchange_takes_processor_time_from_nodes_whose_cores_compute():
    slow, wide, gpu = (node(1, cores=1), node(2, cores=4), node(3, cores=None))
    chosen = choose_nodes([slow, wide, gpu], network(3, 1e10), ALEXNET_BYTES).chosen
    assert chosen.batches[0] < chosen.batches[1] < chosen.batches[2]
