"""Measurement of the network between all nodes, as a training would use it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from launch.gradient_sync.allreduce.encoded_sum import make_sum
from planner.cluster.sync_cost import BUCKET_BYTES
from planner.cluster_tuning.reports import LinksMeasured
from probes.network.all_reduce import Floats, measure_all_reduce
from probes.network.links import measure_links

if TYPE_CHECKING:
    from mpi4py import MPI

_ALL_REDUCES_S = 20.0
_FEWEST_RUNS = 6
"""Of one size: alone and beside computing, of each the first one warms up."""


def measure_network(comm: MPI.Comm, message_bytes: Sequence[int]) -> LinksMeasured:
    """Measure every link, and what it takes to sum gradients of some sizes.

    Collective, and nothing else should run on the nodes meanwhile. What is timed is the sum that
    training uses.
    """
    links = measure_links(comm)
    if comm.size < 2:
        return LinksMeasured(links=tuple(links))
    ring = make_sum(comm.Dup())

    def sum_in_place(numbers: Floats) -> None:
        bucket = BUCKET_BYTES // numbers.itemsize
        ring.sum_all(numbers[at : at + bucket] for at in range(0, numbers.size, bucket))

    limit_s = _ALL_REDUCES_S / max(len(message_bytes), 1)
    most = largest_within(limit_s / _FEWEST_RUNS, comm.size, [link.bytes_per_s for link in links])
    sums = [
        measure_all_reduce(comm, size, sum_in_place=sum_in_place, time_limit_s=limit_s)
        for size in sorted({min(size, most) for size in message_bytes})
    ]
    return LinksMeasured(links=tuple(links), all_reduces=tuple(sums))


def largest_within(time_s: float, ranks: int, bytes_per_s: Sequence[float]) -> int:
    """Give the size of the gradients that a ring can sum in some time, whole buckets of them.

    Those of VGG16 take most of a minute at 100 Mb/s, and a part of them shows the same.
    """
    sent = 2 * (ranks - 1) / ranks  # by each rank, for a byte of the gradients
    return max(1, int(time_s * min(bytes_per_s) / sent / BUCKET_BYTES)) * BUCKET_BYTES
