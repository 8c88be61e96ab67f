"""Which nodes should train together, with which shares, and how fast will they be?

A job is as fast as its slowest node, and an exchange of gradients as its slowest link. So a node
more may make the job slower, and the subset of the nodes that is fastest is not always all of them.
For each subset: shares that let all finish together, the step time that follows, and from both the
samples per second. Nothing is measured here and nothing started.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from launch.errors import InvalidPlanError
from planner.exchange_time import Exchange
from planner.prediction import ClusterNode, Prediction, predict

TIE = 0.02
"""Part of the throughput by which a prediction can tell subsets apart. Below it, fewer nodes are as
good as more: there is less that can fail."""

_NOTABLE_GAIN = 0.1
"""Gain from which on a larger batch is worth a word."""

_LARGER = (2, 4, 8)

_ALL_SUBSETS = 10
"""Nodes up to which every subset is looked at: 1023."""

_MANY = 64
"""Nodes beyond which a node that slows the job is no longer looked for one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What one node is worth to the job."""

    host: str
    is_used: bool
    gain: float | None
    """Throughput with it over throughput without it, less 1; ``None`` where it is all there is,
    or one of both cannot take the global batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Which nodes to use, and why."""

    chosen: Prediction
    """Subset to use."""

    best: Prediction
    """Fastest subset by prediction: what is chosen unless the user wants all hosts, ties apart."""

    predictions: tuple[Prediction, ...]
    """Every subset that was looked at, the fastest first."""

    gains: tuple[Gain, ...]
    """Of every node, in the order in which they were given."""

    larger: Prediction | None = None
    """What a larger global batch would give, where that is much more."""

    knows_network: bool = True
    """Whether links were measured; if not, the predictions leave the exchange out and all nodes are
    used."""


def judge(
    nodes: Sequence[ClusterNode],
    exchange: Exchange | None,
    gradient_bytes: int | None,
    *,
    global_batch: int | None = None,
    all_hosts: bool = False,
) -> Verdict:
    """Choose the nodes to train with.

    Where the user names no global batch, a subset trains with the sum of the batches that its
    nodes were tuned with: the batch decides how well a model learns, so it does not grow for
    speed's sake alone; `Verdict.larger` tells what that would give.

    Args:
        nodes: In the order of their ranks, each with a plan.
        exchange: The network between them; ``None`` where it was not measured.
        gradient_bytes: What a node exchanges in a step; ``None`` where it is not known.
        global_batch: Of every step, where the user has named it.
        all_hosts: Whether to use every node whatever the prediction.

    Raises:
        InvalidPlanError: The nodes cannot take the global batch.
    """
    knows_network = len(nodes) == 1 or (exchange is not None and gradient_bytes is not None)
    known = exchange if knows_network else None
    cluster = _Cluster(nodes, known, gradient_bytes, global_batch)
    whole = tuple(range(len(nodes)))
    found = cluster.look_around() if knows_network else {}
    if all_hosts or not found:
        found[whole] = cluster.predict(whole)
    ranked = sorted(found, key=lambda subset: -found[subset].throughput_samples_per_s)
    best = _simplest_of_best(ranked, found)
    chosen = whole if all_hosts else best
    return Verdict(
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
        exchange: Exchange | None,
        gradient_bytes: int | None,
        global_batch: int | None,
    ) -> None:
        self._nodes = nodes
        self._exchange = exchange
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
        return predict(nodes, self._exchange, self._gradient_bytes, asked)

    def find(self, subset: Subset, global_batch: int | None = None) -> Prediction | None:
        """Predict a subset, ``None`` where these nodes cannot take the global batch."""
        key = (subset, global_batch or 0)
        if key not in self._known:
            try:
                self._known[key] = self.predict(subset, global_batch) if subset else None
            except InvalidPlanError:
                self._known[key] = None
        return self._known[key]

    def look_around(self) -> dict[Subset, Prediction]:
        """Predict every subset, or those of many nodes that may be the fastest."""
        if len(self._nodes) <= _ALL_SUBSETS:
            subsets: Iterator[Subset] = _subsets(len(self._nodes))
        else:
            subsets = self._climb()
        found = {subset: self.find(subset) for subset in subsets}
        return {subset: known for subset, known in found.items() if known is not None}

    def _climb(self) -> Iterator[Subset]:
        """Give the fastest nodes, so many or one more; then the best of these with one changed.

        A slow link can be anyone's, so nodes are left out and taken in one by one for as long as
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

    def gain(self, node: int, chosen: Subset) -> Gain:
        """Give what a node is worth to the chosen ones: what it adds, or would."""
        is_used = node in chosen
        other = self.find(_toggled(chosen, node))
        this = self.find(chosen)
        gain = None
        if this is not None and other is not None:
            with_it, without = (this, other) if is_used else (other, this)
            gain = with_it.throughput_samples_per_s / without.throughput_samples_per_s - 1
        return Gain(host=self._nodes[node].host, is_used=is_used, gain=gain)

    def find_larger(self, chosen: Subset) -> Prediction | None:
        """Give a larger global batch that is worth a word, for the chosen nodes or all."""
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


def _subsets(count: int) -> Iterator[Subset]:
    for size in range(1, count + 1):
        yield from combinations(range(count), size)


def _toggled(subset: Subset, node: int) -> Subset:
    """Leave a node out of a subset that has it, take it into one that has not."""
    return tuple(sorted(set(subset) ^ {node}))


def _simplest_of_best(ranked: Sequence[Subset], found: Mapping[Subset, Prediction]) -> Subset:
    """Give the smallest subset that is as fast as the fastest, as far as can be told."""
    least = (1 - TIE) * found[ranked[0]].throughput_samples_per_s
    tied = [subset for subset in ranked if found[subset].throughput_samples_per_s >= least]
    return min(tied, key=len)
