"""Groups of stored trainings that differ in how many workers they had alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from planner.paper_tables._evidence import TrainingEvidence
from planner.paper_tables._worker_sweep import (
    TARGETS,
    best_accuracy,
    time_to_accuracy,
)
from planner.trainings.rates import median_rate
from probes.timing import Interval


@dataclass(frozen=True, slots=True, order=True)
class Line:
    """What trainings have in common that are compared; others learn, or compute, otherwise."""

    machine: str
    """That started them."""

    data: str
    batch: int
    """Of all hosts."""

    epochs: int
    """That were asked for: the learning rate falls with them."""

    numerics: str
    """What else changes what is learned, as ``bf16``; empty where nothing does."""

    each: str
    """What each worker computes with."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """What trainings of one row have in common."""

    line: Line
    hosts: int
    workers: int
    strategies: str


@dataclass(frozen=True, slots=True)
class Group:
    """Trainings of one place, the newest first."""

    place: Place
    trainings: Sequence[TrainingEvidence]

    @property
    def rate(self) -> Interval | None:
        """Samples per second of all of them; of two, with what either of them shows."""
        known = [one.rate for one in self.trainings if one.rate is not None]
        if len(known) >= 3:
            return median_rate([one.median for one in known])
        if not known:
            return None
        return Interval(
            median=mean(one.median for one in known),
            low=min(one.low for one in known),
            high=max(one.high for one in known),
            count=sum(one.count for one in known),
        )

    @property
    def accuracy(self) -> float:
        """The best of them; 0 where no epoch was validated."""
        return max(best_accuracy(one.record.epochs_done) for one in self.trainings)

    def reached(self, target: float) -> list[float]:
        """Give the times to an accuracy of those that have reached it."""
        times = (time_to_accuracy(one.record.epochs_done, target) for one in self._whole())
        return [time_s for time_s in times if time_s is not None]

    def missed(self, target: float) -> int:
        """Count those that have not, though they trained as long as one that has."""
        least_s = min(self.reached(target), default=0.0)
        return sum(
            best_accuracy(one.record.epochs_done) < target and _trained_s(one) >= least_s
            for one in self._whole()
        )

    def time(self, target: float | None) -> Interval | None:
        """Give the time to an accuracy; without those that missed it, it would be too short."""
        if target is None or self.missed(target):
            return None
        return median_rate(self.reached(target))

    def _whole(self) -> Iterator[TrainingEvidence]:
        """Give those whose first epoch is on record, and not in the training they resumed."""
        for one in self.trainings:
            epochs = one.record.epochs_done
            if epochs and epochs[0].epoch == 1:
                yield one


def group_trainings(trainings: Sequence[TrainingEvidence]) -> list[Group]:
    """Put trainings into groups, in the order of their places."""
    found: defaultdict[Place, list[TrainingEvidence]] = defaultdict(list)
    for one in trainings:
        if one.rate is not None:
            found[_place(one)].append(one)
    return [Group(place, found[place]) for place in sorted(found)]


def find_targets(groups: Sequence[Group]) -> Mapping[Line, float]:
    """Give the accuracy to reach of each line: the highest with a time in all groups, or any."""
    found: dict[Line, float] = {}
    for line in dict.fromkeys(group.place.line for group in groups):
        same = [group for group in groups if group.place.line == line]
        timed = [t for t in TARGETS if all(group.time(t) is not None for group in same)]
        reached = [t for t in TARGETS if any(group.reached(t) for group in same)]
        if best := timed or reached:
            found[line] = best[0]
    return found


def find_one_worker(groups: Sequence[Group], place: Place) -> Group | None:
    """Find the trainings with one worker of the same kind that a place is compared with."""
    return next((g for g in groups if g.place.line == place.line and g.place.workers == 1), None)


def find_curves(groups: Sequence[Group]) -> Iterator[Sequence[Group]]:
    """Give groups that differ in their workers alone: one worker, then more by one strategy."""
    for line in dict.fromkeys(group.place.line for group in groups):
        same = [group for group in groups if group.place.line == line]
        first = [group for group in same if group.place.workers == 1][:1]
        more = [group for group in same if group.place.workers > 1]
        kinds = dict.fromkeys((group.place.hosts, group.place.strategies) for group in more)
        for kind in kinds:
            yield [*first, *(g for g in more if (g.place.hosts, g.place.strategies) == kind)]
        if not kinds:
            yield first


def _place(one: TrainingEvidence) -> Place:
    record, plans = one.record, [host.plan for host in one.record.hosts]
    numerics = {plan.precision for plan in plans} - {"fp32"}
    numerics |= {f"learning rate {plan.lr_scaling}" for plan in plans if plan.lr_scaling != "none"}
    cores = one.cores / one.workers
    return Place(
        line=Line(
            machine=record.machine,
            data=record.data or "generated",
            batch=sum(plan.node_batch for plan in plans),
            epochs=record.epochs,
            numerics=", ".join(sorted(numerics)),
            each="GPU" if one.uses_gpus else "1 core" if cores == 1 else f"{cores:.2g} cores",
        ),
        hosts=len(plans),
        workers=one.workers,
        strategies=one.strategies,
    )


def _trained_s(one: TrainingEvidence) -> float:
    return sum(epoch.train_time_s + epoch.validation_time_s for epoch in one.record.epochs_done)
