"""Speeds of the hosts of a testbed, each by itself, and what is predicted of them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from statistics import fmean

from _hosts import ALEXNET_PARAMETERS, Cluster, Trains
from _turns import Turn, take_turns
from testbed.bed import TestHost

from launch.plan import Plan
from launch.shares import fit_step_time
from planner.cluster.links import MeasuredLinks
from planner.cluster.prediction import ClusterNode, Prediction, predict
from planner.cluster.sync_cost import EARLY_READY, SyncCostModel

GRADIENT_BYTES = 4 * ALEXNET_PARAMETERS
PLAN = Plan(
    strategy="sequential",
    node_batch=32,
    memory_format="channels_last",
    allocator="retain",
    fused_optimizer=True,
)
"""One core, so that the speeds of hosts are those of their cores."""


def together(batches: Mapping[TestHost, int]) -> Trains:
    """Give one job of hosts, with the batch of each."""
    return list(batches), [replace(PLAN, node_batch=batch) for batch in batches.values()]


def each_alone(batches: Mapping[TestHost, int]) -> list[Trains]:
    """Give a job for each host by itself, with its batch.

    They belong into one turn: hosts of one machine share its caches and its memory also when they
    train together.
    """
    return [together({host: batch}) for host, batch in batches.items()]


def measure_nodes(
    cluster: Cluster,
    tuned: Mapping[TestHost, int],
    parts: Sequence[float],
    alone: Turn,
    *,
    rounds: int,
    seconds: float,
) -> list[ClusterNode]:
    """Measure each host with its batch and with a quarter of it, as `tune` does.

    Args:
        cluster: Of the hosts.
        tuned: Batch of each host.
        parts: Of a core that each host has.
        alone: The turn in which each trains by itself with its batch.
        rounds: Of two turns each.
        seconds: That a turn takes.
    """
    small = {host: max(1, batch // 4) for host, batch in tuned.items()}
    with cluster.turn(each_alone(small)) as few:
        found = take_turns([few, alone], rounds=rounds, seconds=seconds)
    nodes = []
    for place, (host, part) in enumerate(zip(tuned, parts, strict=True)):
        points = [
            (small[host], fmean(few_s[place] for few_s, _ in found)),
            (tuned[host], fmean(many_s[place] for _, many_s in found)),
        ]
        nodes.append(
            ClusterNode(
                host=host.name,
                time=fit_step_time(points),
                tuned_batch=tuned[host],
                cores=part,
                first_ready=EARLY_READY,
            )
        )
    return nodes


def predict_shares(
    cluster: Cluster, parts: Sequence[float], batch: int, *, rounds: int, seconds: float
) -> Prediction:
    """Predict a job of all hosts, by what each needs alone for its part of the batch."""
    hosts = cluster.bed.hosts
    sizes = [round(batch * part / sum(parts)) for part in parts]
    tuned = dict(zip(hosts, sizes, strict=True))
    with cluster.turn(each_alone(tuned)) as alone:
        nodes = measure_nodes(cluster, tuned, parts, alone, rounds=rounds, seconds=seconds)
    return predict(nodes, measure_exchange(cluster, hosts), GRADIENT_BYTES, batch)


def measure_exchange(cluster: Cluster, hosts: Sequence[TestHost]) -> SyncCostModel | None:
    """Measure what the network can do, as `probe --hosts` does; ``None`` for one host."""
    if len(hosts) < 2:
        return None
    found = cluster.measure_network(GRADIENT_BYTES)
    measured = MeasuredLinks.from_ranks(
        found.links,
        found.all_reduces,
        hosts=[host.name for host in hosts],
        fingerprints=[""] * len(hosts),
        measured_at=datetime.now(UTC),
    )
    return SyncCostModel(measured)
