"""How long do nodes exchange gradients in a step, and what does it take from computing?

Gradients are summed around a ring, in chunks, while the backward pass still computes those of
other layers: each of ``k`` nodes sends ``2 (k - 1) / k`` times the gradients to its neighbour and
receives as much (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009). What was
measured between these hosts is used where there is a measurement; a constant stands in for the
rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from planner.links import MeasuredLinks, SumTime

FIRST_READY = 0.4
"""Part of a step after which its first gradients are there.

The forward pass takes a third of the step; then the backward pass begins with the layers that
have most of the gradients: the fully connected ones of AlexNet and VGG16, with 96 and 89 % of them,
are done after 8 and 1 % of it.
"""

EARLY_READY = 0.1
"""The same where the forward pass begins while gradients of the last step are still exchanged.

What the last layers compute, forward and backward, is left between them and the next ones: two
hosts with AlexNet needed 0.2 s beside 2.13 s on the link, of which they computed 1.25 s.
"""


def first_ready(micro_batches: int, *, begins_early: bool, sends_at_end: bool) -> float:
    """Give the part of a step that passes before gradients can be exchanged, while nothing is.

    Args:
        micro_batches: Of a step; gradients are final in the last one.
        begins_early: Whether the next step begins before they are exchanged.
        sends_at_end: Whether none is exchanged before all are computed.
    """
    if sends_at_end:
        return 1.0
    ready = EARLY_READY if begins_early else FIRST_READY
    return 1 - (1 - ready) / micro_batches


CHUNK_BYTES = 4 * 2**20
"""Gradients that go around the ring together, as `launch.exchange.gradients` cuts them."""

_UNDER_WAY = 4
"""Chunks that wait for each other's messages at the same time, as in `launch.exchange.ring`."""

_UPDATE_S_PER_BYTE = 2e-10
"""Of gradients: averaging and updating 228 MB took 31 to 46 ms. It is in the measured time of a
step, but where the network is the last to finish it comes after that."""

_AGREEING_S = 0.0015
"""After the last chunk the nodes tell each other their loss and times: a few small messages, each
looked for every half millisecond."""

CPU_S_PER_BYTE = 1.3e-9
"""Processor time for each byte sent and received, where none was measured: copies in the kernel and
the sum. A pair of cores exchanged 228 MB each way over an unshaped veth in 0.22 s, and the rank
took 0.07 s more where it shared caches with a worker that computed."""

COPY_S_PER_BYTE = 2.5e-10
"""Of gradients, on top: workers copy them to where the rank finds them. With 228 MB the worker took
0.05 s longer for that."""


def ring_bytes(message_bytes: float, nodes: int) -> float:
    """Give what each node sends, and receives, when so many sum a message."""
    return 2 * (nodes - 1) / nodes * message_bytes


ROUNDING_S_PER_BYTE = 2.5e-9
"""Of gradients, where they are rounded to 16 bits: processor time of the rank for rounding them,
their sums, and what is carried over. 228 MB took 0.6 s of the core on which they are added up in
0.02 s."""


class Exchange:
    """Exchanges over a network that was measured.

    Args:
        measured: What the links can do, and how long sums took over them.
        is_rounded: Whether gradients travel as 16 bits in place of 32.
    """

    def __init__(self, measured: MeasuredLinks, *, is_rounded: bool = False) -> None:
        self.measured = measured
        self._is_rounded = is_rounded
        self._links = {frozenset((link.first, link.second)): link for link in measured.links}
        self._spent_per_byte = _spent_per_byte(measured)

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

    def beside_s(self, hosts: Sequence[str], gradient_bytes: int) -> float:
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

    def tail_s(self, hosts: Sequence[str], gradient_bytes: int) -> float:
        """Give the time of what comes last: nothing is left to hide it behind."""
        if len(hosts) < 2:
            return 0.0
        return self.wire_s(hosts, min(gradient_bytes, CHUNK_BYTES)) + _AGREEING_S

    def update_s(self, gradient_bytes: int) -> float:
        """Give the time of the update that comes after the gradients."""
        return _UPDATE_S_PER_BYTE * gradient_bytes

    def lost_s(self, host: str, hosts: Sequence[str], cores: float, gradient_bytes: int) -> float:
        """Give the time of a step that a node of so many cores loses to the exchange.

        What a slow node needs for a sum is in the time that the sum took with it: no part of a
        core, however small, loses more. A quota makes interrupts no slower than a whole core does.

        Args:
            host: Of the node; one of ``hosts``.
            hosts: In the order of the ring; all were measured.
            cores: Cores' worth of time that computes on it.
            gradient_bytes: Of each host.
        """
        sent = ring_bytes(self._on_wire(gradient_bytes), len(hosts))
        cpu_s, interrupts_s = (sent * spent for spent in self._spent_per_byte[host])
        exchange_s = cpu_s / cores
        if self.measured.sums:
            exchange_s = min(exchange_s, self.beside_s(hosts, gradient_bytes))
        exchange_s += interrupts_s / max(cores, 1.0)
        per_byte = COPY_S_PER_BYTE + (ROUNDING_S_PER_BYTE if self._is_rounded else 0.0)
        return exchange_s + per_byte * gradient_bytes / cores

    def _on_wire(self, gradient_bytes: int) -> int:
        return gradient_bytes // 2 if self._is_rounded else gradient_bytes

    def _ideal_s(self, hosts: Sequence[str], message_bytes: float) -> float:
        """Give the time of a ring whose slowest link is always in use, but for its latency."""
        neighbours = zip(hosts, [*hosts[1:], hosts[0]], strict=True)
        links = [self._links[frozenset(pair)] for pair in neighbours]
        turns = math.ceil(message_bytes / CHUNK_BYTES / _UNDER_WAY)
        waits = 2 * (len(hosts) - 1) * turns
        return ring_bytes(message_bytes, len(hosts)) / max(
            min(link.bytes_per_s for link in links), 1.0
        ) + (waits * max(link.latency_s for link in links))

    def _slowdown(self, message_bytes: int) -> float:
        """Give how much longer than ideal a sum of about this size took, all hosts together."""
        nearest = self._nearest(message_bytes)
        if nearest is None:
            return 1.0
        return nearest.time_s / self._ideal_s(self.measured.hosts, nearest.message_bytes)

    def _nearest(self, message_bytes: int) -> SumTime | None:
        distances = {
            abs(math.log(one.message_bytes / message_bytes)): one for one in self.measured.sums
        }
        return distances[min(distances)] if distances else None


def _spent_per_byte(measured: MeasuredLinks) -> dict[str, tuple[float, float]]:
    """Give processor time of each host's rank, and of interrupts, for a byte sent and received."""
    if not measured.sums:
        return dict.fromkeys(measured.hosts, (CPU_S_PER_BYTE, 0.0))
    largest = measured.sums[-1]
    sent = ring_bytes(largest.message_bytes, len(measured.hosts))
    spent = zip(measured.hosts, largest.cpu_s, largest.interrupts_s, strict=True)
    return {host: (cpu_s / sent, interrupts_s / sent) for host, cpu_s, interrupts_s in spent}
