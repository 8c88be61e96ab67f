"""Prediction of a subset of nodes: their shares and the time of a step with the gradient sync."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from launch.shares import NO_LIMITS, NodeLimits, StepTime, balance_batches
from planner.cluster.sync_cost import FIRST_READY, SyncCostModel

_FULL_NODES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """A node as the prediction sees it: its speed and its limits."""

    host: str
    time: StepTime
    """Of its plan, on this node alone."""

    tuned_batch: int
    """Node batch that its plan was found with."""

    limits: NodeLimits = NO_LIMITS

    cores: float | None = None
    """Cores' worth of time for computing, of which the sync takes a part; ``None`` where it takes
    none, because GPUs compute or cores are left free."""

    first_ready: float = FIRST_READY
    """Part of its step that passes before the first gradients can be summed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Predicted speed of a subset of the nodes."""

    hosts: tuple[str, ...]
    batches: tuple[int, ...]
    computing_s: tuple[float, ...]
    """Time of each node for its share, without the sync."""

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
    sync_cost: SyncCostModel | None,
    gradient_bytes: int,
    global_batch: int | None = None,
) -> Prediction:
    """Predict the speed of these nodes with balanced shares.

    The gradient sync begins with the first gradients and runs beside the computing, from which it
    takes processor time. While a node with less than a core computes, it runs slower; afterwards
    at the speed of the network. The last bucket comes after both:
    ``step = max(computing + processor time, end of the sync + update) + last bucket``.

    Args:
        nodes: In the order of the ring.
        sync_cost: The network between them; ``None`` leaves it out.
        gradient_bytes: Size of a node's gradients.
        global_batch: Samples of a step; without it the sum of the nodes' tuned batches, or fewer
            where nodes that are at their limit would wait for the others.

    Raises:
        InvalidPlanError: These nodes cannot take the global batch.
    """
    times = _Times(nodes, sync_cost, gradient_bytes)
    if global_batch is not None:
        return times.predict(global_batch)
    usual = times.predict(sum(node.tuned_batch for node in nodes))
    full = [
        node for node, n in zip(nodes, usual.batches, strict=True) if n == node.limits.max_batch
    ]
    full.sort(key=lambda node: node.time.at(node.limits.max_batch or 0))
    # Of many full nodes a few are enough: the fastest of them, and some between it and the last.
    most = usual.global_batch
    smaller = {times.batch_within(node, most) for node in full[:: max(1, len(full) // _FULL_NODES)]}
    choice = [usual, *(times.predict(n) for n in smaller if n < most)]
    return max(choice, key=lambda prediction: prediction.throughput_samples_per_s)


class _Times:
    """Times of steps of these nodes."""

    def __init__(
        self, nodes: Sequence[ClusterNode], sync_cost: SyncCostModel | None, gradient_bytes: int
    ) -> None:
        self._nodes = nodes
        self._hosts = tuple(node.host for node in nodes)
        self._wire_s = self._overlapped_s = self._exposed_s = self._update_s = 0.0
        self._overhead_s = [0.0 for _ in nodes]
        if sync_cost is not None and len(nodes) > 1:
            self._wire_s = sync_cost.wire_s(self._hosts, gradient_bytes)
            self._exposed_s = sync_cost.exposed_s(self._hosts, gradient_bytes)
            self._update_s = sync_cost.update_s(gradient_bytes)
            self._overlapped_s = sync_cost.overlapped_s(self._hosts, gradient_bytes)
            self._overhead_s = [
                0.0
                if node.cores is None
                else sync_cost.overhead_s(node.host, self._hosts, node.cores, gradient_bytes)
                for node in nodes
            ]
        self._busy = [
            replace(node.time, fixed_s=node.time.fixed_s + overhead_s)
            for node, overhead_s in zip(nodes, self._overhead_s, strict=True)
        ]

    def predict(self, global_batch: int) -> Prediction:
        nodes, busy = self._nodes, self._busy
        batches = balance_batches(busy, global_batch, [node.limits for node in nodes])
        computing_s = tuple(node.time.at(n) for node, n in zip(nodes, batches, strict=True))
        busy_s = max(time.at(n) for time, n in zip(busy, batches, strict=True))
        network_s = self._sync_end_s(computing_s) + self._update_s if self._wire_s else 0.0
        return Prediction(
            hosts=self._hosts,
            batches=batches,
            computing_s=computing_s,
            wire_s=self._wire_s,
            step_s=max(busy_s, network_s) + self._exposed_s,
        )

    def _sync_end_s(self, computing_s: Sequence[float]) -> float:
        """Give the time in the step at which all gradients but the last bucket are summed."""
        first_s = max(
            node.first_ready * time_s for node, time_s in zip(self._nodes, computing_s, strict=True)
        )
        # A node with part of a core is paused when its quota is used up, and the others wait.
        parts = [
            (node.cores, -time_s, overhead_s)
            for node, time_s, overhead_s in zip(
                self._nodes, computing_s, self._overhead_s, strict=True
            )
            if node.cores is not None and node.cores < 1
        ]
        if not parts:
            return first_s + self._wire_s
        _, minus_s, overhead_s = min(parts)
        return first_s + self._shared_s(-minus_s - first_s, overhead_s)

    def _shared_s(self, computing_s: float, overhead_s: float) -> float:
        """Give the time of a sync that begins while a node still has this much to compute.

        The sync takes processor time from the computing: ``t = computing + overhead t / beside``.
        The rest of the sync has the processor for itself.
        """
        if computing_s <= 0.0:
            return self._wire_s
        if computing_s + overhead_s >= self._overlapped_s:
            return self._overlapped_s
        part = computing_s / (self._overlapped_s - overhead_s)
        return part * self._overlapped_s + (1 - part) * self._wire_s

    def batch_within(self, full: ClusterNode, most: int) -> int:
        """Give the samples that all nodes can take in the time of one that is at its limit.

        Of a node that could take more than ``most``, so many count.
        """
        assert full.limits.max_batch is not None
        time_s = self._busy[self._nodes.index(full)].at(full.limits.max_batch)
        highest = [node.limits.clip(most) for node in self._nodes]
        return sum(
            # There may be time for more samples than floats tell apart.
            high if time.at(high) <= time_s else node.limits.clip(time.samples_within(time_s))
            for node, time, high in zip(self._nodes, self._busy, highest, strict=True)
        )
