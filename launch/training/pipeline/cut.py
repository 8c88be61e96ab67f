"""Cut of a model into stages, chosen from measured times; nothing is run.

The slowest stage sets the pace of a pipeline, so the best cut is the one whose slowest stage is
fastest. Cuts whose times differ by less than measured times vary count as equal: of those, the best
sends the fewest bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean

from launch.errors import InvalidPlanError

NOISE = 0.02
"""Variation of times of equal work, as a share."""

_UNEQUAL = 1.1
"""Time of the slowest device / that of the fastest from which on they are taken to differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCost:
    """Costs of one layer, and of a cut after it."""

    time_s: float
    """Forward and backward pass of one micro-batch; unused where the user names the cut."""

    output_bytes: int
    """Bytes sent to the next stage where the model is cut after this layer."""

    is_trained: bool
    """Whether the layer has parameters to train: each stage must."""

    may_end_stage: bool
    """Whether the model may be cut after this layer."""

    is_convolution: bool = False


Cut = tuple[int, ...]
"""Index of the first layer of each stage but the first."""


def stage_bounds(cut: Cut, layers: int) -> list[tuple[int, int]]:
    """Return the layers of each stage as ``(first, one behind the last)``."""
    return list(pairwise((0, *cut, layers)))


def stage_times_s(
    costs: Sequence[LayerCost], cut: Cut, slowness: Sequence[float] = ()
) -> list[float]:
    """Sum the times of the layers of each stage, times its `find_slowness`, or 1."""
    bounds = stage_bounds(cut, len(costs))
    pairs = zip(bounds, slowness or [1.0] * len(bounds), strict=True)
    return [factor * sum(c.time_s for c in costs[a:b]) for (a, b), factor in pairs]


def find_slowness(times_s: Sequence[float], stages: int) -> list[float]:
    """Find by how much the devices of each stage take longer than all devices on average.

    1 for each stage where they differ no more than times of equal work may.

    Args:
        times_s: Of all layers on the device of each worker, one replica after the other.
        stages: Of a replica. The slowest device of a stage sets its pace.
    """
    if max(times_s) < _UNEQUAL * min(times_s):
        return [1.0] * stages
    return [max(times_s[stage::stages]) / fmean(times_s) for stage in range(stages)]


def find_cut(costs: Sequence[LayerCost], stages: int, slowness: Sequence[float] = ()) -> Cut:
    """Find the cut whose slowest stage is fastest, by dynamic programming over all cuts.

    Args:
        costs: Of the layers, on average over all devices.
        stages: Their number.
        slowness: See `find_slowness`; 1 for each stage where left out.

    Raises:
        InvalidPlanError: The model cannot be cut into so many stages.
    """
    slowness = slowness or [1.0] * stages
    fastest = _best(costs, slowness, limit_s=float("inf"), by_time=True)
    if fastest is None:
        points = len(_places(costs))
        raise InvalidPlanError(
            f"stages={stages} and {points} places where the model may be cut: use fewer stages; "
            "layers that share parameters stay together, and each stage must train something"
        )
    limit_s = (1 + NOISE) * max(stage_times_s(costs, fastest, slowness))
    frugal = _best(costs, slowness, limit_s=limit_s, by_time=False)
    assert frugal is not None, "the fastest cut is within the limit"
    return frugal


def published_cut(costs: Sequence[LayerCost], stages: int) -> Cut:
    """Return the cut of Lerat, Mahmoudi and Mahmoudi (2022) for the two models that they cut.

    AlexNet (5 convolutions) after the 4th, VGG16 (13) after the 8th.

    Raises:
        InvalidPlanError: They have not cut such a model, or not into so many stages.
    """
    places = [index for index, cost in enumerate(costs) if cost.is_convolution]
    last = {5: 4, 13: 8}.get(len(places))
    if last is None or stages != 2:
        raise InvalidPlanError(
            f"cut=paper, stages={stages} and convolutions={len(places)}: the paper cuts AlexNet "
            "(5) and VGG16 (13) into 2 stages: use cut=measured"
        )
    return check_cut((places[last - 1] + 1,), costs, stages)


def parse_cut(text: str) -> tuple[int, ...]:
    """Read the first layers of the later stages, such as ``3,6``.

    Raises:
        InvalidPlanError: It is no such list.
    """
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise InvalidPlanError(
            f"cut={text!r}: use measured, paper, or the first layers of the later stages, as 3,6"
        )
    cut = tuple(map(int, words))
    if any(a >= b for a, b in pairwise((0, *cut))):
        raise InvalidPlanError(f"cut={text!r}: use ascending numbers from 1 on")
    return cut


def check_cut(cut: Cut, costs: Sequence[LayerCost], stages: int) -> Cut:
    """Check a cut that the user names against the model.

    Raises:
        InvalidPlanError: It cannot be made.
    """
    text = ",".join(map(str, cut))
    if len(cut) + 1 != stages:
        raise InvalidPlanError(f"cut={text} and stages={stages}: name {stages - 1} layers")
    if cut[-1] >= len(costs):
        raise InvalidPlanError(f"cut={text} and layers={len(costs)}: use numbers below")
    allowed = _places(costs)
    if refused := sorted(set(cut) - set(allowed)):
        raise InvalidPlanError(
            f"cut={text}: no stage may begin at layer {refused[0]}, whose predecessors share "
            f"parameters with it: choose of {','.join(map(str, allowed))}"
        )
    if any(not any(c.is_trained for c in costs[a:b]) for a, b in stage_bounds(cut, len(costs))):
        raise InvalidPlanError(f"cut={text}: each stage must have a parameter to train")
    return cut


def _best(
    costs: Sequence[LayerCost], slowness: Sequence[float], *, limit_s: float, by_time: bool
) -> Cut | None:
    """Find the cut with the smallest ``(time, bytes)``, or ``(bytes, time)``.

    Here the time is that of the slowest stage, at most ``limit_s``, and the bytes are those of
    all places where the model is cut. ``best[n]`` holds the best of all ways to part the first
    ``n`` layers into the stages so far.
    """
    times = list(accumulate((cost.time_s for cost in costs), initial=0.0))
    trained = list(accumulate((cost.is_trained for cost in costs), initial=0))

    def rank(time_s: float, num_bytes: int) -> tuple[float, float]:
        return (time_s, num_bytes) if by_time else (num_bytes, time_s)

    best: dict[int, tuple[float, int, Cut]] = {0: (0.0, 0, ())}
    for stage, factor in enumerate(slowness, start=1):
        ends = [len(costs)] if stage == len(slowness) else _places(costs)
        longer: dict[int, tuple[float, int, Cut]] = {}
        for end in ends:
            ways = []
            for start, (slowest_s, sent, cut) in best.items():
                time_s = max(slowest_s, factor * (times[end] - times[start]))
                if start < end and time_s <= limit_s and trained[end] > trained[start]:
                    more = costs[start - 1].output_bytes if start else 0
                    ways.append((time_s, sent + more, (*cut, start) if start else cut))
            if ways:
                longer[end] = min(ways, key=lambda way: (rank(way[0], way[1]), way[2]))
        best = longer
    return best[len(costs)][2] if len(costs) in best else None


def _places(costs: Sequence[LayerCost]) -> list[int]:
    return [index + 1 for index, cost in enumerate(costs[:-1]) if cost.may_end_stage]
