"""Nodes that train AlexNet, and the networks between them."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from sample_plan import NOON

from launch.shares import NodeLimits, StepTime
from planner.cluster.links import HostAllReduce, HostLink, MeasuredLinks
from planner.cluster.prediction import ClusterNode
from planner.cluster.sync_cost import SyncCostModel

ALEXNET_BYTES = 228_000_000
GIGABIT = 117e6
"""Bytes per second of a 1 Gb/s link, as iperf3 sees it."""


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


def network(
    count: int,
    bytes_per_s: float = GIGABIT,
    slow: dict | None = None,
    *,
    name: str = "n",
    latency_s: float = 5e-5,
    **changes,
):
    """A network of so many hosts, on which some pairs are slower."""
    hosts = tuple(f"{name}{number}" for number in range(1, count + 1))
    links = tuple(
        HostLink(
            first=one,
            second=other,
            latency_s=latency_s,
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
