"""How fast is each host of a testbed by itself, and what would be predicted of them together?"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from itertools import combinations

from _hosts import ALEXNET_PARAMETERS, Cluster
from testbed.bed import TestHost

from launch.plan import Plan
from launch.shares import StepTime, fit_step_time
from planner.exchange_time import EARLY_READY, Exchange
from planner.links import HostLink, MeasuredLinks, SumTime
from planner.prediction import ClusterNode
from probes.timing import Measurement

GRADIENT_BYTES = 4 * ALEXNET_PARAMETERS
PLAN = Plan(
    strategy="sequential",
    node_batch=32,
    memory_format="channels_last",
    allocator="retain",
    fused_optimizer=True,
)
"""One core, so that the speeds of hosts are those of their cores."""

_LATENCY_S = 5e-5
"""Of a testbed; of gradients of this size it takes next to nothing."""


def median_s(times_s: Sequence[float]) -> float:
    """Give the median of step times."""
    return Measurement(samples_s=tuple(times_s)).median_s


def alone_at_once(
    cluster: Cluster, hosts: Sequence[TestHost], batches: Sequence[int], steps: int
) -> list[float]:
    """Train on every host by itself, all at the same time; give the step time of each.

    At once, because hosts of one machine share its caches and its memory also when they train
    together.
    """
    with ThreadPoolExecutor(len(hosts)) as pool:
        calls = [
            pool.submit(
                cluster.step_times_s, [replace(PLAN, node_batch=batch)], steps, hosts=[host]
            )
            for host, batch in zip(hosts, batches, strict=True)
        ]
        return [median_s(call.result()) for call in calls]


def measure_lines(
    cluster: Cluster, hosts: Sequence[TestHost], batches: Sequence[int], steps: int
) -> list[StepTime]:
    """Measure each host with its batch and with a quarter of it, as `tune` does."""
    small = [max(1, batch // 4) for batch in batches]
    small_s = alone_at_once(cluster, hosts, small, steps)
    whole_s = alone_at_once(cluster, hosts, batches, steps)
    return [
        fit_step_time([few, many])
        for few, many in zip(
            zip(small, small_s, strict=True), zip(batches, whole_s, strict=True), strict=True
        )
    ]


def measure_exchange(cluster: Cluster, hosts: Sequence[TestHost]) -> Exchange | None:
    """Measure what the network can do, as `probe --hosts` does; ``None`` for one host."""
    if len(hosts) < 2:
        return None
    rate = cluster.iperf3_bytes_per_s()
    summed = cluster.add_up(GRADIENT_BYTES, 5)
    names = tuple(host.name for host in hosts)
    return Exchange(
        MeasuredLinks(
            hosts=names,
            fingerprints=("",) * len(names),
            measured_at=datetime.now(UTC),
            links=tuple(
                HostLink(first=one, second=other, latency_s=_LATENCY_S, bytes_per_s=rate)
                for one, other in combinations(names, 2)
            ),
            sums=(
                SumTime(
                    message_bytes=GRADIENT_BYTES,
                    time_s=median_s(summed["times_s"]),
                    cpu_s=median_s(summed["processor_s"]),
                ),
            ),
        )
    )


def cluster_node(host: TestHost, time: StepTime, batch: int, cores: float) -> ClusterNode:
    """Give what the prediction must know of a host of one core, or of a part of its time."""
    return ClusterNode(
        host=host.name, time=time, tuned_batch=batch, cores=cores, first_ready=EARLY_READY
    )
