"""How fast would these nodes train together? Shares, the exchange beside them, the step time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from launch.shares import StepTime, equalise
from planner.exchange_time import FIRST_READY, Exchange

_FULL_NODES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """What must be known of a node to give it a share."""

    host: str
    time: StepTime
    """Of its plan, alone."""

    tuned_batch: int
    """Node batch that its plan was found with."""

    floor: int = 1
    """Smallest node batch."""

    granule: int = 1
    """What its node batch should be a multiple of."""

    cap: int | None = None
    """Largest node batch; ``None`` where nothing limits it."""

    cores: float | None = None
    """Cores' worth of time for computing, which the exchange takes a part of; ``None`` where it
    takes none, because GPUs compute or cores are left free."""

    first_ready: float = FIRST_READY
    """Part of its step that passes before gradients can be exchanged, while nothing is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """How a subset of the nodes would train."""

    hosts: tuple[str, ...]
    batches: tuple[int, ...]
    computing_s: tuple[float, ...]
    """Time of each node for its share, without the exchange."""

    wire_s: float
    """Time that the network needs for a step's gradients; 0 of one node."""

    step_s: float

    @property
    def global_batch(self) -> int:
        """Samples of a step over all nodes."""
        return sum(self.batches)

    @property
    def throughput_samples_per_s(self) -> float:
        """Samples per second of the whole job."""
        return self.global_batch / self.step_s


def predict(
    nodes: Sequence[ClusterNode],
    exchange: Exchange | None,
    gradient_bytes: int,
    global_batch: int | None = None,
) -> Prediction:
    """Predict how these nodes train with the best shares there are.

    The exchange begins when the first gradients are there and runs beside the computing, from which
    it takes processor time. Beside a node with a part of a core it takes longer; what is left of it
    when that has computed goes on as fast as the network can, and the last chunk comes after both:
    ``step = max(computing + processor time, end of the exchange + update) + last chunk``.

    Args:
        nodes: In the order of the ring.
        exchange: The network between them; ``None`` leaves it out.
        gradient_bytes: What a node exchanges in a step.
        global_batch: Samples of a step; where left out, as many as the nodes' plans have together,
            or fewer where one is full with its share and the others would let it wait.

    Raises:
        InvalidPlanError: These nodes cannot take the global batch.
    """
    times = _Times(nodes, exchange, gradient_bytes)
    if global_batch is not None:
        return times.predict(global_batch)
    usual = times.predict(sum(node.tuned_batch for node in nodes))
    full = [node for node, n in zip(nodes, usual.batches, strict=True) if n == node.cap]
    full.sort(key=lambda node: node.time.at(node.cap or 0))
    # Of many full nodes a few tell enough: the first to be full, and some between it and the last.
    smaller = {times.batch_within(node) for node in full[:: max(1, len(full) // _FULL_NODES)]}
    choice = [usual, *(times.predict(n) for n in smaller if n < usual.global_batch)]
    return max(choice, key=lambda prediction: prediction.throughput_samples_per_s)


class _Times:
    """What steps of these nodes take."""

    def __init__(
        self, nodes: Sequence[ClusterNode], exchange: Exchange | None, gradient_bytes: int
    ) -> None:
        self._nodes = nodes
        self._hosts = tuple(node.host for node in nodes)
        self._wire_s = self._beside_s = self._tail_s = self._update_s = 0.0
        self._lost_s = [0.0 for _ in nodes]
        if exchange is not None and len(nodes) > 1:
            self._wire_s = exchange.wire_s(self._hosts, gradient_bytes)
            self._tail_s = exchange.tail_s(self._hosts, gradient_bytes)
            self._update_s = exchange.update_s(gradient_bytes)
            self._beside_s = exchange.beside_s(self._hosts, gradient_bytes)
            self._lost_s = [
                0.0
                if node.cores is None
                else exchange.lost_s(node.host, self._hosts, node.cores, gradient_bytes)
                for node in nodes
            ]
        self._busy = [
            _longer(node.time, lost_s) for node, lost_s in zip(nodes, self._lost_s, strict=True)
        ]

    def predict(self, global_batch: int) -> Prediction:
        nodes, busy = self._nodes, self._busy
        caps, floors = [node.cap for node in nodes], [node.floor for node in nodes]
        granules = [node.granule for node in nodes]
        batches = equalise(busy, global_batch, caps, floors=floors, granules=granules)
        computing_s = tuple(node.time.at(n) for node, n in zip(nodes, batches, strict=True))
        busy_s = max(time.at(n) for time, n in zip(busy, batches, strict=True))
        network_s = self._exchanged_s(computing_s) + self._update_s if self._wire_s else 0.0
        return Prediction(
            hosts=self._hosts,
            batches=batches,
            computing_s=computing_s,
            wire_s=self._wire_s,
            step_s=max(busy_s, network_s) + self._tail_s,
        )

    def _exchanged_s(self, computing_s: Sequence[float]) -> float:
        """Give when the gradients are exchanged, all but the last chunk."""
        first_s = max(
            node.first_ready * time_s for node, time_s in zip(self._nodes, computing_s, strict=True)
        )
        # A node with a part of a core stands still when that is used up, and the others wait.
        parts = [
            (node.cores, -time_s, lost_s)
            for node, time_s, lost_s in zip(self._nodes, computing_s, self._lost_s, strict=True)
            if node.cores is not None and node.cores < 1
        ]
        if not parts:
            return first_s + self._wire_s
        _, minus_s, lost_s = min(parts)
        return first_s + self._shared_s(-minus_s - first_s, lost_s)

    def _shared_s(self, computing_s: float, lost_s: float) -> float:
        """Give how long an exchange takes that begins with so much computing of a node left.

        Computing takes the longer for what the exchange takes of the processor meanwhile: ``t =
        computing + lost t / beside``. The rest of the exchange has the processor for itself.
        """
        if computing_s <= 0.0:
            return self._wire_s
        if computing_s + lost_s >= self._beside_s:
            return self._beside_s
        part = computing_s / (self._beside_s - lost_s)
        return part * self._beside_s + (1 - part) * self._wire_s

    def batch_within(self, full: ClusterNode) -> int:
        """Give the global batch that all can take in the time of a node that is full."""
        assert full.cap is not None
        time_s = self._busy[self._nodes.index(full)].at(full.cap)
        return sum(
            _capped(max(time.samples_within(time_s), node.floor), node.cap)
            for node, time in zip(self._nodes, self._busy, strict=True)
        )


def _longer(time: StepTime, lost_s: float) -> StepTime:
    return StepTime(fixed_s=time.fixed_s + lost_s, per_sample_s=time.per_sample_s)


def _capped(batch: int, cap: int | None) -> int:
    return batch if cap is None else min(batch, cap)
