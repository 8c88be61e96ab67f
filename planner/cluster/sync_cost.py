"""Cost model of the gradient sync between nodes: time on the network, processor time per step.

Gradients are summed in buckets, while the backward pass still computes those of other layers. How
often a link carries them follows from the algorithm, how many bytes they are and what writing them
costs from the format (`launch.gradient_sync`). What was measured between these hosts is a ring of
exact numbers; constants are used for the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from launch.gradient_sync.algorithms import load_algorithm
from launch.gradient_sync.algorithms.ring import Ring
from launch.gradient_sync.wire_formats import load_wire_format
from planner.cluster.links import HostAllReduce, MeasuredLinks

FIRST_READY = 0.4
"""Part of a step after which its first gradients are ready.

The forward pass takes a third of the step; then the backward pass begins with the layers that
have most of the gradients: the fully connected ones of AlexNet and VGG16, with 96 and 89 % of them,
are done after 8 and 1 % of it.
"""

EARLY_READY = 0.1
"""The same where the forward pass begins while gradients of the last step are still summed.

Only the last layers compute, forward and backward, between the end of one sync and the start of the
next: two hosts with AlexNet needed 0.2 s beside 2.13 s on the link, of which they computed 1.25 s.
"""


def first_ready(micro_batches: int, *, begins_early: bool, sends_at_end: bool) -> float:
    """Give the part of a step that passes before the first gradients can be summed.

    Args:
        micro_batches: Of a step; gradients are final in the last one.
        begins_early: Whether the next step begins before they are summed.
        sends_at_end: Whether the sync starts only after all of them are computed.
    """
    if sends_at_end:
        return 1.0
    ready = EARLY_READY if begins_early else FIRST_READY
    return 1 - (1 - ready) / micro_batches


BUCKET_BYTES = 4 * 2**20
"""Gradients that are summed together, as cut by `launch.gradient_sync.allreduce.buckets`."""

_BYTES_PER_NUMBER = 4
"""Gradients are float32 nearly always."""

_IN_FLIGHT = 4
"""Buckets that are on the network at the same time, as in
`launch.gradient_sync.allreduce.bucket_sum`."""

_UPDATE_S_PER_BYTE = 2e-10
"""Of gradients: averaging and updating 228 MB took 31 to 46 ms. It is in the measured time of a
step, but where the network is the last to finish it comes after that."""

_AGREEING_S = 0.0015
"""After the last bucket the nodes exchange their loss and times: a few small messages, each polled
for every half millisecond."""

CPU_S_PER_BYTE = 1.3e-9
"""Processor time for each byte sent and received, where none was measured: copies in the kernel and
the sum. A pair of cores exchanged 228 MB each way over an unshaped veth in 0.22 s, and the rank
took 0.07 s more where it shared caches with a worker that computed."""

COPY_S_PER_BYTE = 2.5e-10
"""Of gradients, on top: workers copy them into shared memory for the rank. With 228 MB the worker
took 0.05 s longer for that."""


_RING = Ring()
"""What was measured between the hosts."""


class SyncCostModel:
    """Cost of gradient syncs over a measured network, with a wire format and an algorithm.

    ``hosts`` of its methods are in the order of the ring, and all were measured;
    ``gradient_bytes`` are those of each host.
    """

    def __init__(
        self, measured: MeasuredLinks, *, wire: str = "fp32", all_reduce: str = "ring"
    ) -> None:
        self.measured = measured
        self._format = load_wire_format(wire)
        self._algorithm = load_algorithm(all_reduce)
        self._links = {frozenset((link.first, link.second)): link for link in measured.links}
        self._cpu_s_per_byte = _cpu_s_per_byte(measured)

    def wire_s(self, hosts: Sequence[str], gradient_bytes: int) -> float:
        """Give the time that the network needs for the gradients of one step of two hosts or more.

        It is never shorter than what a rank needs to write and read the messages, one after the
        other.
        """
        load, hops = self._algorithm.load(len(hosts)), self._algorithm.hops(len(hosts))
        on_wire = self._on_wire(gradient_bytes)
        buckets = math.ceil(gradient_bytes / BUCKET_BYTES)
        link_s = self._slowdown(on_wire) * self._ideal_s(hosts, load * on_wire, hops, buckets)
        return max(link_s, self._format.processor_s_per_byte * gradient_bytes)

    def overlapped_s(self, hosts: Sequence[str], gradient_bytes: int) -> float:
        """Give the same while all cores of the hosts compute."""
        nearest = self._nearest(self._on_wire(gradient_bytes))
        longer = 1.0
        if nearest is not None and nearest.beside_s is not None:
            longer = max(1.0, nearest.beside_s / nearest.time_s)
        return longer * self.wire_s(hosts, gradient_bytes)

    def exposed_s(self, hosts: Sequence[str], gradient_bytes: int) -> float:
        """Give the time of the last bucket, which no computing overlaps."""
        return self.wire_s(hosts, min(gradient_bytes, BUCKET_BYTES)) + _AGREEING_S

    def update_s(self, gradient_bytes: int) -> float:
        """Give the time of the update that comes after the gradients."""
        return _UPDATE_S_PER_BYTE * gradient_bytes

    def overhead_s(
        self, host: str, hosts: Sequence[str], cores: float, gradient_bytes: int
    ) -> float:
        """Give the computing time per step that a node with so many cores loses to the sync.

        A node never loses more than the measured time of the sum, which includes the slowest
        node's processor time. A quota makes interrupts no slower than a whole core does.
        """
        sent = self._algorithm.load(len(hosts)) * self._on_wire(gradient_bytes)
        cpu_s, interrupts_s = (sent * spent for spent in self._cpu_s_per_byte[host])
        overhead_s = cpu_s / cores
        if self.measured.sums:
            overhead_s = min(overhead_s, self.overlapped_s(hosts, gradient_bytes))
        overhead_s += interrupts_s / max(cores, 1.0)
        per_byte = COPY_S_PER_BYTE + self._format.processor_s_per_byte
        return overhead_s + per_byte * gradient_bytes / cores

    def _on_wire(self, gradient_bytes: int) -> int:
        return self._format.num_bytes(gradient_bytes // _BYTES_PER_NUMBER)

    def _ideal_s(self, hosts: Sequence[str], sent: float, hops: int, buckets: int) -> float:
        """Give the time of so many bytes on a slowest link that is always in use, but for latency.

        The hops are messages about a bucket that follow one another.
        """
        neighbours = zip(hosts, [*hosts[1:], hosts[0]], strict=True)
        links = [self._links[frozenset(pair)] for pair in neighbours]
        waits = hops * math.ceil(buckets / _IN_FLIGHT)
        return sent / max(min(link.bytes_per_s for link in links), 1.0) + (
            waits * max(link.latency_s for link in links)
        )

    def _slowdown(self, message_bytes: int) -> float:
        """Give measured / ideal time of the sum over all hosts that is nearest in size."""
        nearest = self._nearest(message_bytes)
        if nearest is None:
            return 1.0
        hosts, buckets = self.measured.hosts, math.ceil(nearest.message_bytes / BUCKET_BYTES)
        sent = _RING.load(len(hosts)) * nearest.message_bytes
        return nearest.time_s / self._ideal_s(hosts, sent, _RING.hops(len(hosts)), buckets)

    def _nearest(self, message_bytes: int) -> HostAllReduce | None:
        def distance(one: HostAllReduce) -> float:
            return abs(math.log(one.message_bytes / max(1, message_bytes)))

        return min(reversed(self.measured.sums), key=distance, default=None)


def _cpu_s_per_byte(measured: MeasuredLinks) -> dict[str, tuple[float, float]]:
    """Give processor time of each host's rank, and of interrupts, per byte sent and received."""
    if not measured.sums:
        return dict.fromkeys(measured.hosts, (CPU_S_PER_BYTE, 0.0))
    largest = measured.sums[-1]
    sent = _RING.load(len(measured.hosts)) * largest.message_bytes
    spent = zip(measured.hosts, largest.cpu_s, largest.interrupts_s, strict=True)
    return {host: (cpu_s / sent, interrupts_s / sent) for host, cpu_s, interrupts_s in spent}
