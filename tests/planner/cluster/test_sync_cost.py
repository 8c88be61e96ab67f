"""Cost of an exchange: on the network, on processors, and for a step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launch.gradient_sync.wire_formats import load_wire_format, wire_format_names
from planner.cluster.links import HostAllReduce
from planner.cluster.prediction import predict
from planner.cluster.sync_cost import (
    BUCKET_BYTES,
    COPY_S_PER_BYTE,
    CPU_S_PER_BYTE,
    EARLY_READY,
    FIRST_READY,
    SyncCostModel,
)
from tests.planner.cluster.alexnet_nodes import ALEXNET_BYTES, GIGABIT, network, node, sum_time


def test_step_waits_for_the_network_where_that_takes_longer_than_computing():
    both = predict([node(1), node(2)], network(2, GIGABIT / 10), ALEXNET_BYTES)
    wire_s = ALEXNET_BYTES / (GIGABIT / 10)  # a ring of two sends all of it once
    assert both.wire_s == pytest.approx(wire_s, rel=0.01)
    first_s = FIRST_READY * max(both.computing_s)
    last_s = wire_s * BUCKET_BYTES / ALEXNET_BYTES
    assert both.step_s == pytest.approx(first_s + wire_s + last_s, rel=0.01)


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


def test_gradients_of_a_single_byte_are_no_number_and_cost_next_to_nothing():
    """The story: a plan file may say so, and a launch on several hosts divided by 0."""
    exchange = network(2, sums=(sum_time(time_s=3.9, cpu_s=(0.5, 0.5)),))
    assert exchange.wire_s(["n1", "n2"], 1) < 0.01


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


@pytest.mark.parametrize(("beside_s", "most_s"), [(None, 3.0), (4.0, 4.0)])
def test_slow_node_loses_no_more_to_a_sum_than_it_took_beside_computing(beside_s, most_s):
    measured = sum_time(time_s=3.0, cpu_s=(0.5, 0.5), beside_s=beside_s)
    overhead_s = network(2, sums=(measured,)).overhead_s("n2", ["n1", "n2"], 0.1, ALEXNET_BYTES)
    assert overhead_s == pytest.approx(most_s + 10 * COPY_S_PER_BYTE * ALEXNET_BYTES)


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
