"""Choice of the nodes that train together: the subset with the highest predicted throughput.

A job is as fast as its slowest node, and a gradient sync as its slowest link. So one node more can
make the job slower. Nothing is measured or started here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

from launch.errors import InvalidPlanError
from planner.cluster.prediction import ClusterNode, Prediction, predict
from planner.cluster.sync_cost import SyncCostModel

TIE = 0.02
"""Relative difference in throughput below which subsets count as equally fast. The smaller one is
chosen then: it has less that can fail."""

_NOTABLE_GAIN = 0.1
"""Gain from which on a larger batch is proposed."""

_LARGER = (2, 4, 8)

_ALL_SUBSETS = 10
"""Nodes up to which every subset is predicted: 1023."""

_MANY = 64
"""Nodes beyond which not every node is left out or added in turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGain:
    """Effect of one node on the throughput of the job."""

    host: str
    is_used: bool
    gain: float | None
    """Throughput with it over throughput without it, less 1; ``None`` where it is all there is,
    or one of the two cannot take the global batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChoice:
    """Nodes to use, with the predictions behind the choice."""

    chosen: Prediction
    """Subset to use."""

    best: Prediction
    """Smallest of the fastest subsets: the chosen one, unless the user wants all hosts."""

    predictions: tuple[Prediction, ...]
    """Every predicted subset, the fastest first."""

    gains: tuple[NodeGain, ...]
    """Of every node, in the order of `choose_nodes`."""

    larger: Prediction | None = None
    """Prediction with a larger global batch, where that is much faster."""

    knows_network: bool = True
    """Whether links were measured; else predictions leave the sync out and all nodes are used."""


def choose_nodes(
    nodes: Sequence[ClusterNode],
    sync_cost: SyncCostModel | None,
    gradient_bytes: int | None,
    *,
    global_batch: int | None = None,
    all_hosts: bool = False,
) -> NodeChoice:
    """Choose the nodes to train with.

    Where the user names no global batch, a subset trains with the sum of the batches that its
    nodes were tuned with: the batch decides how well a model learns, so it does not grow for
    speed alone. `NodeChoice.larger` has the prediction for a larger one.

    Args:
        nodes: In the order of their ranks, each with a plan.
        sync_cost: The network between them; ``None`` where it was not measured.
        gradient_bytes: Size of a node's gradients; ``None`` where it is not known.
        global_batch: Samples of a step, where the user has named it.
        all_hosts: Whether to use every node whatever the prediction.

    Raises:
        InvalidPlanError: The nodes cannot take the global batch.
    """
    knows_network = len(nodes) == 1 or (sync_cost is not None and gradient_bytes is not None)
    known = sync_cost if knows_network else None
    cluster = _Cluster(nodes, known, gradient_bytes, global_batch)
    whole = tuple(range(len(nodes)))
    found = cluster.predict_subsets() if knows_network else {}
    if all_hosts or not found:
        found[whole] = cluster.predict(whole)
    ranked = sorted(found, key=lambda subset: -found[subset].throughput_samples_per_s)
    best = _simplest_of_best(ranked, found)
    chosen = whole if all_hosts else best
    return NodeChoice(
        chosen=found[chosen],
        best=found[best],
        predictions=tuple(found[subset] for subset in ranked),
        gains=tuple(cluster.gain(node, chosen) for node in whole) if knows_network else (),
        larger=cluster.find_larger(chosen) if knows_network else None,
        knows_network=knows_network,
    )


Subset = tuple[int, ...]
"""Numbers of nodes, ascending."""


class _Cluster:
    """Predicts subsets of some nodes, each once."""

    def __init__(
        self,
        nodes: Sequence[ClusterNode],
        sync_cost: SyncCostModel | None,
        gradient_bytes: int | None,
        global_batch: int | None,
    ) -> None:
        self._nodes = nodes
        self._sync_cost = sync_cost
        self._gradient_bytes = gradient_bytes or 0
        self._global_batch = global_batch
        self._known: dict[tuple[Subset, int], Prediction | None] = {}

    def predict(self, subset: Subset, global_batch: int | None = None) -> Prediction:
        """Predict a subset.

        Raises:
            InvalidPlanError: These nodes cannot take the global batch.
        """
        nodes = [self._nodes[i] for i in subset]
        asked = global_batch or self._global_batch
        return predict(nodes, self._sync_cost, self._gradient_bytes, asked)

    def find(self, subset: Subset, global_batch: int | None = None) -> Prediction | None:
        """Predict a subset, ``None`` where these nodes cannot take the global batch."""
        key = (subset, global_batch or 0)
        if key not in self._known:
            try:
                self._known[key] = self.predict(subset, global_batch) if subset else None
            except InvalidPlanError:
                self._known[key] = None
        return self._known[key]

    def predict_subsets(self) -> dict[Subset, Prediction]:
        """Predict every subset; of many nodes only those that may be the fastest."""
        subsets = self._hill_climb()
        if len(self._nodes) <= _ALL_SUBSETS:
            every = range(len(self._nodes))
            subsets = chain.from_iterable(combinations(every, size + 1) for size in every)
        found = {subset: self.find(subset) for subset in subsets}
        return {subset: known for subset, known in found.items() if known is not None}

    def _hill_climb(self) -> Iterator[Subset]:
        """Give the n fastest nodes for each n; then the best subset with one node toggled.

        Any node can have a slow link, so nodes are left out and added one by one for as long as
        that makes the job faster.
        """
        speeds = [node.tuned_batch / node.time.at(node.tuned_batch) for node in self._nodes]
        order = sorted(range(len(speeds)), key=lambda i: -speeds[i])
        step = max(1, len(order) // _MANY)
        sizes = sorted({*range(1, len(order) + 1, step), len(order)})
        prefixes = [tuple(sorted(order[:size])) for size in sizes]
        yield from prefixes
        candidates, speed = prefixes, 0.0
        while candidates:
            rates = {subset: self._rate(subset) for subset in candidates}
            fastest = max(candidates, key=lambda subset: rates[subset])
            if rates[fastest] <= speed:
                return
            speed = rates[fastest]
            candidates = [_toggled(fastest, node) for node in order[:_MANY]]
            yield from candidates

    def _rate(self, subset: Subset) -> float:
        found = self.find(subset)
        return 0.0 if found is None else found.throughput_samples_per_s

    def gain(self, node: int, chosen: Subset) -> NodeGain:
        """Give what a node adds to the chosen ones, or would add."""
        is_used = node in chosen
        other = self.find(_toggled(chosen, node))
        this = self.find(chosen)
        gain = None
        if this is not None and other is not None:
            with_it, without = (this, other) if is_used else (other, this)
            gain = with_it.throughput_samples_per_s / without.throughput_samples_per_s - 1
        return NodeGain(host=self._nodes[node].host, is_used=is_used, gain=gain)

    def find_larger(self, chosen: Subset) -> Prediction | None:
        """Predict a larger global batch that is notably faster, for the chosen nodes or all."""
        usual = self.predict(chosen)
        whole = tuple(range(len(self._nodes)))
        for factor in _LARGER if self._global_batch is None else ():
            for subset in dict.fromkeys((chosen, whole)):
                found = self.find(subset, factor * usual.global_batch)
                if found is None:
                    continue
                gain = found.throughput_samples_per_s / usual.throughput_samples_per_s - 1
                if gain > _NOTABLE_GAIN:
                    return found
        return None


def _toggled(subset: Subset, node: int) -> Subset:
    """Remove a node from a subset, or add it."""
    return tuple(sorted(set(subset) ^ {node}))


def _simplest_of_best(ranked: Sequence[Subset], found: Mapping[Subset, Prediction]) -> Subset:
    """Give the smallest subset that is as fast as the fastest, within `TIE`."""
    least = (1 - TIE) * found[ranked[0]].throughput_samples_per_s
    tied = [subset for subset in ranked if found[subset].throughput_samples_per_s >= least]
    return min(tied, key=len)
