"""Cost model of the gradient sync between nodes: time on the network, processor time per step.

Gradients are summed around a ring, in chunks, while the backward pass still computes those of
other layers: each of ``k`` nodes sends ``2 (k - 1) / k`` times the gradients to its neighbour and
receives as much (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009). Constants
are used for what was not measured between these hosts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

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


CHUNK_BYTES = 4 * 2**20
"""Gradients that go around the ring together, as cut by
`launch.gradient_sync.allreduce.buckets`."""

_IN_FLIGHT = 4
"""Chunks that are on the network at the same time, as in
`launch.gradient_sync.allreduce.ring_sum`."""

_UPDATE_S_PER_BYTE = 2e-10
"""Of gradients: averaging and updating 228 MB took 31 to 46 ms. It is in the measured time of a
step, but where the network is the last to finish it comes after that."""

_AGREEING_S = 0.0015
"""After the last chunk the nodes exchange their loss and times: a few small messages, each polled
for every half millisecond."""

CPU_S_PER_BYTE = 1.3e-9
"""Processor time for each byte sent and received, where none was measured: copies in the kernel and
the sum. A pair of cores exchanged 228 MB each way over an unshaped veth in 0.22 s, and the rank
took 0.07 s more where it shared caches with a worker that computed."""

COPY_S_PER_BYTE = 2.5e-10
"""Of gradients, on top: workers copy them into shared memory for the rank. With 228 MB the worker
took 0.05 s longer for that."""


def ring_bytes(message_bytes: float, nodes: int) -> float:
    """Give the bytes that each of so many nodes sends, and receives, to sum a message."""
    return 2 * (nodes - 1) / nodes * message_bytes


ROUNDING_S_PER_BYTE = 2.5e-9
"""Of gradients, where they are rounded to 16 bits: processor time of the rank for rounding them,
their sums, and the rounding errors that are carried over. 228 MB took 0.6 s of the
core on which they are added up in 0.02 s."""


class SyncCostModel:
    """Cost of gradient syncs over a measured network.

    Args:
        measured: Speeds of the links, and times of sums over them.
        is_rounded: Whether gradients travel as 16 bits in place of 32.
    """

    def __init__(self, measured: MeasuredLinks, *, is_rounded: bool = False) -> None:
        self.measured = measured
        self._is_rounded = is_rounded
        self._links = {frozenset((link.first, link.second)): link for link in measured.links}
        self._cpu_s_per_byte = _cpu_s_per_byte(measured)

    def wire_s(self, hosts: Sequence[str], gradient_bytes: int) -> float:
        """Give the time that the network needs for the gradients of one step.

        Args:
            hosts: In the order of the ring; all were measured.
            gradient_bytes: Of each host.
        """
        if len(hosts) < 2:
            return 0.0
        on_wire = self._on_wire(gradient_bytes)
        return self._slowdown(on_wire) * self._ideal_s(hosts, on_wire)

    def overlapped_s(self, hosts: Sequence[str], gradient_bytes: int) -> float:
        """Give the same while all cores of the hosts compute.

        Args:
            hosts: In the order of the ring; all were measured.
            gradient_bytes: Of each host.
        """
        nearest = self._nearest(self._on_wire(gradient_bytes))
        longer = 1.0
        if nearest is not None and nearest.beside_s is not None:
            longer = max(1.0, nearest.beside_s / nearest.time_s)
        return longer * self.wire_s(hosts, gradient_bytes)

    def exposed_s(self, hosts: Sequence[str], gradient_bytes: int) -> float:
        """Give the time of the last chunk, which no computing overlaps."""
        if len(hosts) < 2:
            return 0.0
        return self.wire_s(hosts, min(gradient_bytes, CHUNK_BYTES)) + _AGREEING_S

    def update_s(self, gradient_bytes: int) -> float:
        """Give the time of the update that comes after the gradients."""
        return _UPDATE_S_PER_BYTE * gradient_bytes

    def overhead_s(
        self, host: str, hosts: Sequence[str], cores: float, gradient_bytes: int
    ) -> float:
        """Give the computing time per step that a node with so many cores loses to the sync.

        A node never loses more than the measured time of the sum, which includes the slowest
        node's processor time. A quota makes interrupts no slower than a whole core does.

        Args:
            host: One of ``hosts``.
            hosts: In the order of the ring; all were measured.
            cores: Cores' worth of time for computing on it.
            gradient_bytes: Of each host.
        """
        sent = ring_bytes(self._on_wire(gradient_bytes), len(hosts))
        cpu_s, interrupts_s = (sent * spent for spent in self._cpu_s_per_byte[host])
        overhead_s = cpu_s / cores
        if self.measured.sums:
            overhead_s = min(overhead_s, self.overlapped_s(hosts, gradient_bytes))
        overhead_s += interrupts_s / max(cores, 1.0)
        per_byte = COPY_S_PER_BYTE + (ROUNDING_S_PER_BYTE if self._is_rounded else 0.0)
        return overhead_s + per_byte * gradient_bytes / cores

    def _on_wire(self, gradient_bytes: int) -> int:
        return gradient_bytes // 2 if self._is_rounded else gradient_bytes

    def _ideal_s(self, hosts: Sequence[str], message_bytes: float) -> float:
        """Give the time of a ring whose slowest link is always in use, but for its latency."""
        neighbours = zip(hosts, [*hosts[1:], hosts[0]], strict=True)
        links = [self._links[frozenset(pair)] for pair in neighbours]
        turns = math.ceil(message_bytes / CHUNK_BYTES / _IN_FLIGHT)
        waits = 2 * (len(hosts) - 1) * turns
        return ring_bytes(message_bytes, len(hosts)) / max(
            min(link.bytes_per_s for link in links), 1.0
        ) + (waits * max(link.latency_s for link in links))

    def _slowdown(self, message_bytes: int) -> float:
        """Give measured / ideal time of the sum over all hosts that is nearest in size."""
        nearest = self._nearest(message_bytes)
        if nearest is None:
            return 1.0
        return nearest.time_s / self._ideal_s(self.measured.hosts, nearest.message_bytes)

    def _nearest(self, message_bytes: int) -> HostAllReduce | None:
        distances = {
            abs(math.log(one.message_bytes / message_bytes)): one for one in self.measured.sums
        }
        return distances[min(distances)] if distances else None


def _cpu_s_per_byte(measured: MeasuredLinks) -> dict[str, tuple[float, float]]:
    """Give processor time of each host's rank, and of interrupts, per byte sent and received."""
    if not measured.sums:
        return dict.fromkeys(measured.hosts, (CPU_S_PER_BYTE, 0.0))
    largest = measured.sums[-1]
    sent = ring_bytes(largest.message_bytes, len(measured.hosts))
    spent = zip(measured.hosts, largest.cpu_s, largest.interrupts_s, strict=True)
    return {host: (cpu_s / sent, interrupts_s / sent) for host, cpu_s, interrupts_s in spent}
