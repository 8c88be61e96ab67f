"""Choice of nodes from recorded times and links."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from itertools import combinations

import pytest

from launch.errors import InvalidPlanError
from launch.gradient_sync.wire_formats import load_wire_format, wire_format_names
from launch.shares import NodeLimits, StepTime
from planner.cluster.links import HostAllReduce, HostLink, MeasuredLinks
from planner.cluster.node_choice import TIE, choose_nodes
from planner.cluster.prediction import ClusterNode, predict
from planner.cluster.sync_cost import (
    CHUNK_BYTES,
    COPY_S_PER_BYTE,
    CPU_S_PER_BYTE,
    EARLY_READY,
    FIRST_READY,
    SyncCostModel,
)

ALEXNET_BYTES = 228_000_000
GIGABIT = 117e6
"""Bytes per second of a 1 Gb/s link, as iperf3 sees it."""

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def node(
    number: int,
    speed: float = 1.0,
    *,
    min_batch: int = 1,
    max_batch: int | None = None,
    **changes,
) -> ClusterNode:
    """A node of one core that trains AlexNet at 21 images/s, times a factor."""
    whole = ClusterNode(
        host=f"n{number}",
        time=StepTime(fixed_s=0.05, per_sample_s=0.047 / speed),
        tuned_batch=128,
        limits=NodeLimits(min_batch=min_batch, max_batch=max_batch),
        cores=1,
    )
    return replace(whole, **changes)


def network(count: int, bytes_per_s: float = GIGABIT, slow: dict | None = None, **changes):
    """A network of so many hosts, on which some pairs are slower."""
    hosts = tuple(f"n{number}" for number in range(1, count + 1))
    links = tuple(
        HostLink(
            first=one,
            second=other,
            latency_s=5e-5,
            bytes_per_s=(slow or {}).get((one, other), bytes_per_s),
        )
        for one, other in combinations(hosts, 2)
    )
    measured = MeasuredLinks(
        hosts=hosts,
        fingerprints=("sha256:aa",) * count,
        measured_at=NOON,
        links=links,
    )
    return SyncCostModel(replace(measured, **changes))


def sum_time(**changes) -> HostAllReduce:
    """A sum over two hosts that cost each of them the same."""
    measured = HostAllReduce(
        message_bytes=ALEXNET_BYTES, time_s=2.0, cpu_s=(0.2, 0.2), interrupts_s=(0.0, 0.0)
    )
    return replace(measured, **changes)


def gains(verdict) -> dict[str, float]:
    return {gain.host: gain.gain for gain in verdict.gains}


def test_two_equal_nodes_train_nearly_twice_as_fast_where_computing_hides_the_exchange():
    alone = predict([node(1)], None, ALEXNET_BYTES)
    both = choose_nodes([node(1), node(2)], network(2), ALEXNET_BYTES).chosen
    assert both.hosts == ("n1", "n2")
    assert both.batches == (128, 128)
    gain = both.throughput_samples_per_s / alone.throughput_samples_per_s
    assert 1.85 < gain < 2.0


def test_step_waits_for_the_network_where_that_takes_longer_than_computing():
    both = predict([node(1), node(2)], network(2, GIGABIT / 10), ALEXNET_BYTES)
    wire_s = ALEXNET_BYTES / (GIGABIT / 10)  # a ring of two sends all of it once
    assert both.wire_s == pytest.approx(wire_s, rel=0.01)
    first_s = FIRST_READY * max(both.computing_s)
    last_s = wire_s * CHUNK_BYTES / ALEXNET_BYTES
    assert both.step_s == pytest.approx(first_s + wire_s + last_s, rel=0.01)


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


def test_ring_of_many_sends_each_gradient_twice():
    wire = network(2).wire_s(["n1", "n2"], ALEXNET_BYTES)
    assert network(4).wire_s(["n1", "n2", "n3", "n4"], ALEXNET_BYTES) > 1.49 * wire


def test_measured_sum_says_how_far_from_ideal_the_network_is():
    measured = sum_time(time_s=3.9, cpu_s=(0.5, 0.5))
    hosts = ["n1", "n2"]
    assert network(2, sums=(measured,)).wire_s(hosts, ALEXNET_BYTES) == pytest.approx(3.9)
    small = replace(measured, message_bytes=1000, time_s=1e-4, cpu_s=(1e-5,) * 2)
    exchange = network(2, sums=(small, measured))
    assert exchange.wire_s(hosts, ALEXNET_BYTES) == pytest.approx(3.9)
    assert exchange.wire_s(hosts, 1000) == pytest.approx(1e-4)
    copy_s = COPY_S_PER_BYTE * ALEXNET_BYTES
    assert exchange.overhead_s("n2", hosts, 1, ALEXNET_BYTES) == pytest.approx(0.5 + copy_s)
    assert exchange.overhead_s("n2", hosts, 4, ALEXNET_BYTES) == pytest.approx((0.5 + copy_s) / 4)


def test_rounding_halves_the_bytes_and_what_they_cost_and_has_a_cost_of_its_own():
    hosts, measured = ("n1", "n2"), network(2).measured
    plain, rounded = SyncCostModel(measured), SyncCostModel(measured, wire="bf16")
    ratio = plain.wire_s(hosts, ALEXNET_BYTES) / rounded.wire_s(hosts, ALEXNET_BYTES)
    assert ratio == pytest.approx(2, rel=0.01)
    assert plain.update_s(ALEXNET_BYTES) == rounded.update_s(ALEXNET_BYTES)
    costs = [one.overhead_s("n2", hosts, 1.0, ALEXNET_BYTES) for one in (plain, rounded)]
    saved_s = CPU_S_PER_BYTE * ALEXNET_BYTES / 2
    own_s = load_wire_format("bf16").processor_s_per_byte * ALEXNET_BYTES
    assert costs[1] == pytest.approx(costs[0] - saved_s + own_s)


def test_each_format_is_predicted_with_its_bytes_and_no_faster_than_it_is_written():
    hosts = ("n1", "n2")

    def wire_s(wire: str, bytes_per_s: float) -> float:
        return SyncCostModel(network(2, bytes_per_s).measured, wire=wire).wire_s(
            hosts, ALEXNET_BYTES
        )

    slow = {wire: wire_s("fp32", 1e6) / wire_s(wire, 1e6) for wire in wire_format_names()}
    assert slow == pytest.approx({"fp32": 1, "bf16": 2, "int8": 3.98, "top1": 50}, rel=0.02)
    for wire in ("bf16", "int8", "top1"):
        assert wire_s(wire, 1e12) > 10 * wire_s("fp32", 1e12)


def test_a_tree_and_a_server_carry_more_than_a_ring():
    def wire_s(hosts: int, all_reduce: str) -> float:
        names = [f"n{number}" for number in range(1, hosts + 1)]
        cost = SyncCostModel(network(hosts).measured, all_reduce=all_reduce)
        return cost.wire_s(names, ALEXNET_BYTES)

    for hosts, ring, tree, server in ((2, 1, 2, 2), (8, 1.75, 6, 14)):
        ring_s = wire_s(hosts, "ring")
        assert wire_s(hosts, "tree") == pytest.approx(tree / ring * ring_s, rel=0.01)
        assert wire_s(hosts, "server") == pytest.approx(server / ring * ring_s, rel=0.01)


def test_node_loses_what_its_own_rank_spends_and_its_own_kernel():
    measured = sum_time(cpu_s=(0.5, 0.2), interrupts_s=(0.0, 0.1))
    exchange, hosts = network(2, sums=(measured,)), ["n2", "n1"]
    overhead_s = {host: exchange.overhead_s(host, hosts, 1, ALEXNET_BYTES) for host in hosts}
    copy_s = COPY_S_PER_BYTE * ALEXNET_BYTES
    assert overhead_s == pytest.approx({"n1": 0.5 + copy_s, "n2": 0.3 + copy_s})


def test_slow_node_loses_no_more_to_a_sum_than_the_sum_took_with_it():
    measured = sum_time(time_s=3.0, cpu_s=(0.5, 0.5))
    overhead_s = network(2, sums=(measured,)).overhead_s("n2", ["n1", "n2"], 0.1, ALEXNET_BYTES)
    assert overhead_s == pytest.approx(3.0 + 10 * COPY_S_PER_BYTE * ALEXNET_BYTES)


def test_slow_node_loses_no_more_than_the_sum_took_beside_computing():
    measured = sum_time(time_s=3.0, cpu_s=(0.5, 0.5), beside_s=4.0)
    overhead_s = network(2, sums=(measured,)).overhead_s("n2", ["n1", "n2"], 0.1, ALEXNET_BYTES)
    assert overhead_s == pytest.approx(4.0 + 10 * COPY_S_PER_BYTE * ALEXNET_BYTES)


def test_quota_makes_packets_no_slower_than_a_whole_core_does():
    measured = sum_time(time_s=3.0, interrupts_s=(0.1, 0.1), beside_s=4.0)
    without = replace(measured, interrupts_s=(0.0, 0.0))

    def overhead_s(one: HostAllReduce, cores: float) -> float:
        return network(2, sums=(one,)).overhead_s("n2", ["n1", "n2"], cores, ALEXNET_BYTES)

    for cores, more_s in ((0.25, 0.1), (1, 0.1), (4, 0.025)):
        assert overhead_s(measured, cores) - overhead_s(without, cores) == pytest.approx(more_s)


@pytest.mark.parametrize("samples", [1, 10, 20, 40, 80])
@pytest.mark.parametrize("cores", [1, 0.5, 0.25])
def test_sum_is_slowed_as_long_as_a_node_with_a_part_of_a_core_computes(samples, cores):
    measured = sum_time(beside_s=3.5)
    exchange = network(2, sums=(measured,))
    slow = node(2, cores=cores, min_batch=samples, max_batch=samples, first_ready=EARLY_READY)
    fast = node(1, min_batch=40, max_batch=40, first_ready=EARLY_READY)
    predicted = predict([fast, slow], exchange, ALEXNET_BYTES, 40 + samples)
    expected_s = simulated_step_s([fast, slow], [40, samples], exchange)
    assert predicted.step_s == pytest.approx(expected_s, rel=1e-3)


def simulated_step_s(nodes, batches, exchange) -> float:
    """Simulate a step in slices of 0.1 ms: the computing, and the speed of the sum meanwhile."""
    hosts = [one.host for one in nodes]
    left = [one.time.at(n) for one, n in zip(nodes, batches, strict=True)]
    lost = [exchange.overhead_s(one.host, hosts, one.cores, ALEXNET_BYTES) for one in nodes]
    first_s = max(one.first_ready * s for one, s in zip(nodes, left, strict=True))
    alone_s = exchange.wire_s(hosts, ALEXNET_BYTES)
    overlapped_s = exchange.overlapped_s(hosts, ALEXNET_BYTES)
    slowest = max(range(len(nodes)), key=lambda i: (lost[i], left[i]))
    time_s = done = computed_s = exchanged_s = 0.0
    while any(s > 0 for s in left) or done < 1:
        going_s = 0.0 if time_s < first_s or done >= 1 else alone_s
        if going_s and left[slowest] > 0 and nodes[slowest].cores < 1:
            going_s = overlapped_s
        # What the sum takes of a node's processor in this slice.
        part = 1e-4 / going_s if going_s else 0.0
        left = [s - (1e-4 - part * overhead_s) for s, overhead_s in zip(left, lost, strict=True)]
        done += part
        time_s += 1e-4
        computed_s = time_s if any(s > 0 for s in left) else computed_s
        exchanged_s = time_s if going_s else exchanged_s
    ended_s = max(computed_s, exchanged_s + exchange.update_s(ALEXNET_BYTES))
    return ended_s + exchange.exposed_s(hosts, ALEXNET_BYTES)


def test_release_that_measured_no_sum_beside_computing_takes_it_for_as_fast():
    older = sum_time()
    exchange, hosts = network(2, sums=(older,)), ["n1", "n2"]
    assert exchange.overlapped_s(hosts, ALEXNET_BYTES) == exchange.wire_s(hosts, ALEXNET_BYTES)
    slower = network(2, sums=(replace(older, beside_s=3.0),))
    assert slower.overlapped_s(hosts, ALEXNET_BYTES) == pytest.approx(3.0)
    assert slower.wire_s(hosts, ALEXNET_BYTES) == pytest.approx(2.0)


def test_exchange_takes_processor_time_from_nodes_whose_cores_compute():
    slow, wide, gpu = (node(1, cores=1), node(2, cores=4), node(3, cores=None))
    chosen = choose_nodes([slow, wide, gpu], network(3, 1e10), ALEXNET_BYTES).chosen
    assert chosen.batches[0] < chosen.batches[1] < chosen.batches[2]
