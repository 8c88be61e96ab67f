"""CIFAR-10 over 1 ... k workers: throughput, and time to an accuracy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from launch.reports import EpochDone
from planner.paper_tables._base import Paper
from planner.paper_tables._evidence import (
    StoredEvidence,
    TrainingEvidence,
    describe_machine,
)
from planner.paper_tables._values import (
    Cell,
    CurvePlot,
    MeasuredCurve,
    MeasuredPoint,
    PaperTable,
    TableColumn,
)
from planner.paper_tables._wanted import (
    Wanted,
    WantedTraining,
    WantedTrial,
    training_key,
    trial_key,
)
from planner.sweeps.findings import share_interval
from planner.trainings.rates import median_rate, ratio_of_trainings
from probes.hardware import Hardware
from probes.timing import Interval

_CASE = "cifar_resnet44"
_ACCURACY = "accuracy"
_TARGETS = (0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5, 0.4, 0.3)
"""Test accuracies to reach; the highest that all rows reached is compared, else any row."""

_PUBLISHED_ACCURACY = 92.83
_PUBLISHED = (
    "He, Zhang, Ren and Sun, Deep Residual Learning for Image Recognition, 2016, "
    "https://arxiv.org/abs/1512.03385: ResNet-44 has a test error of 7.17 % on CIFAR-10"
)

_COLUMNS = (
    TableColumn(key="machine", title="Machine"),
    TableColumn(key="data", title="Data", may_drop=True),
    TableColumn(key="workers", title="Workers", is_number=True),
    TableColumn(key="cores", title="Cores", is_number=True),
    TableColumn(key="hosts", title="Hosts", is_number=True, may_drop=True),
    TableColumn(key="rate", title="Samples/s", is_number=True),
    TableColumn(key="scaling", title="Times one worker", is_number=True),
    TableColumn(key="time", title="s to the accuracy", is_number=True),
    TableColumn(key="accuracy", title="Best accuracy, %", is_number=True),
    TableColumn(key="published_accuracy", title="Published accuracy, %", is_number=True),
    TableColumn(key="plan", title="Plan", may_drop=True),
)


@dataclass(frozen=True, slots=True, order=True)
class _Row:
    """What trainings of one row have in common; others say nothing about their speed."""

    machine: str
    """That started them."""

    data: str
    workers: int
    hosts: int

    @property
    def line(self) -> tuple[str, str]:
        """What rows have in common that are compared."""
        return self.machine, self.data


_Groups = Mapping[_Row, Sequence[TrainingEvidence]]


class CifarScaling(Paper):
    """The CIFAR-10 network of He et al. over workers."""

    name = "cifar_scaling"
    order = 3
    title = "CIFAR-10 with ResNet-44: scaling over workers"
    citation = _PUBLISHED
    use_cases = (_CASE,)

    def tables(self, held: StoredEvidence) -> Sequence[PaperTable]:
        groups = _groups(held)
        target = _target(groups)
        rows = list(_rows(held, groups, target))
        notes = [
            f"The accuracy to reach is {100 * target:g} % on the test set."
            if target is not None
            else "No stored training has reached 30 % on the test set.",
            "Trainings ran at different times: how far the machine drifts is in their ratios.",
            "Several trainings with as many workers, on one machine and the same data, are one "
            "row. One alone shows no spread of its time: that interval is from half to twice.",
            *map(describe_machine, held.of(_CASE)),
            "Published figures of scaling over workers: not found here.",
        ]
        rows.append(
            {
                "machine": Cell(text="He et al."),
                "data": Cell(text="CIFAR-10"),
                "published_accuracy": Cell.published(_PUBLISHED_ACCURACY),
            }
        )
        return [
            PaperTable(
                key="cifar-scaling",
                title="Trainings by machine and number of workers",
                columns=_COLUMNS,
                rows=tuple(rows),
                source=_PUBLISHED,
                notes=tuple(notes),
            )
        ]

    def plots(self, held: StoredEvidence) -> Sequence[CurvePlot]:
        groups = _groups(held)
        target = _target(groups)
        rates = _curves(groups, _rate)
        times = _curves(groups, lambda group: _time(group, target))
        why = f"missing: {_why(held)}."
        name = "" if target is None else f" {100 * target:g} %"
        return [
            CurvePlot(
                key="cifar-throughput",
                title="CIFAR-10: samples per second over workers",
                x_title="workers",
                y_title="samples/s",
                is_counted=True,
                curves=rates,
                notes=() if rates else (why,),
            ),
            CurvePlot(
                key="cifar-time-to-accuracy",
                title=f"CIFAR-10: time to an accuracy of{name or ' the test set'}",
                x_title="workers",
                y_title="seconds",
                is_counted=True,
                curves=times,
                notes=() if times else (f"missing: {_why_no_time(held)}.",),
            ),
        ]

    def wanted(self, held: StoredEvidence, node: Hardware) -> Sequence[Wanted]:
        study = held.study_of(_CASE, node.fingerprint())
        many = None if study is None else study.fastest("processes")
        found: list[Wanted] = []
        has_failed = study is not None and study.failure("processes") is not None
        if many is None and not has_failed and node.cpu.usable_cores > 1:
            found.append(WantedTrial(use_case=_CASE, strategy="processes"))
        mine = {row.workers for row in _groups(held) if row.machine == node.node}
        for name, trial in (
            ("one worker", None if study is None else study.baseline()),
            ("several workers", many),
        ):
            workers = None if trial is None else max(trial.plan.processes, trial.plan.replicas)
            if workers not in mine:
                after = trial_key(_CASE, "processes")
                found.append(WantedTraining(use_case=_CASE, name=name, trial=trial, after=after))
        return found


def _groups(held: StoredEvidence) -> _Groups:
    """Give trainings by their row."""
    found: defaultdict[_Row, list[TrainingEvidence]] = defaultdict(list)
    for one in held.trained(_CASE):
        if one.rate is not None:
            record = one.record
            row = _Row(record.machine, record.data or "generated", one.workers, len(record.hosts))
            found[row].append(one)
    return dict(sorted(found.items()))


def _target(groups: _Groups) -> float | None:
    """Give the highest accuracy that can be compared."""
    best = [max(map(_best_accuracy, group)) for group in groups.values()]
    for least in (min(best, default=0.0), max(best, default=0.0)):
        if (found := next((t for t in _TARGETS if t <= least), None)) is not None:
            return found
    return None


def _rows(
    held: StoredEvidence, groups: _Groups, target: float | None
) -> Iterator[Mapping[str, Cell]]:
    if not groups:
        why = _why(held)
        yield {"machine": Cell(text="any"), "workers": Cell.counted(1), "rate": Cell.lacking(why)}
        return
    for place, group in groups.items():
        one = next(row for row in groups if row.line == place.line)
        first, rate = _rate(groups[one]), _rate(group)
        newest = group[0]
        accuracy = max(map(_best_accuracy, group))
        samples = _test_samples(held)
        time = _time(group, target)
        row = {
            "machine": Cell(text=place.machine),
            "data": Cell(text=place.data),
            "workers": Cell.counted(place.workers),
            "cores": Cell.counted(newest.cores),
            "hosts": Cell.counted(place.hosts),
            "plan": Cell(text=f"{newest.strategies}, batch {_batch(newest)}"),
        }
        if rate is not None and first is not None:
            row["rate"] = Cell.measured(rate)
            if one.workers != 1:
                row["scaling"] = Cell.lacking("no training with one worker is stored")
            elif place != one:
                row["scaling"] = Cell.measured(ratio_of_trainings(first, rate))
        row["time"] = Cell.lacking(_why_no_time(held)) if time is None else Cell.measured(time)
        if not accuracy:
            row["accuracy"] = Cell.lacking("no epoch was validated")
        elif samples is None:
            row["accuracy"] = Cell.lacking("how many samples the test set has is not on record")
        else:
            row["accuracy"] = Cell.measured(share_interval(accuracy, samples).scaled(100))
        yield row


def _test_samples(held: StoredEvidence) -> int | None:
    facts = next((s.record.facts for s in held.of(_CASE) if s.record.facts is not None), None)
    return None if facts is None else facts.validation_samples


def _rate(group: Sequence[TrainingEvidence]) -> Interval | None:
    """Give the samples per second of trainings with as many workers."""
    known = [one.rate for one in group if one.rate is not None]
    if len(known) < 3:  # two medians show less of their spread than the stretches of one
        return known[0] if known else None
    return median_rate([one.median for one in known])


def _time(group: Sequence[TrainingEvidence], target: float | None) -> Interval | None:
    if target is None:
        return None
    return median_rate([time for one in group if (time := _time_to(one, target)) is not None])


def _time_to(one: TrainingEvidence, target: float) -> float | None:
    """Give when a training had first reached an accuracy, ``None`` where it has not."""
    epochs = one.record.epochs_done
    passed = accumulate(epoch.train_time_s + epoch.validation_time_s for epoch in epochs)
    for epoch, passed_s in zip(epochs, passed, strict=True):
        if _accuracy(epoch) >= target:
            return passed_s
    return None


def _best_accuracy(one: TrainingEvidence) -> float:
    return max(map(_accuracy, one.record.epochs_done), default=0.0)


def _accuracy(epoch: EpochDone) -> float:
    return epoch.metrics.get(_ACCURACY, 0.0)


def _batch(one: TrainingEvidence) -> int:
    return sum(host.plan.node_batch for host in one.record.hosts)


def _curves(
    groups: _Groups, value: Callable[[Sequence[TrainingEvidence]], Interval | None]
) -> tuple[MeasuredCurve, ...]:
    """Give a value over workers, a curve for each machine and its data."""
    found: defaultdict[tuple[str, str], list[MeasuredPoint]] = defaultdict(list)
    for row, group in groups.items():
        if (y := value(group)) is not None:
            found[row.line].append(MeasuredPoint(x=row.workers, y=y))
    return tuple(
        MeasuredCurve(
            label="measured" if len(found) == 1 else f"{machine}: {Path(data).name}",
            points=tuple(points),
        )
        for (machine, data), points in found.items()
    )


def _why(held: StoredEvidence) -> str:
    for name in ("several workers", "one worker"):
        if (reason := held.reasons.get(training_key(_CASE, name))) is not None:
            return reason
    return (
        f"no training of {_CASE} is stored: ddlplan report --measure, or "
        f"ddlplan launch --use-case {_CASE} --epochs N"
    )


def _why_no_time(held: StoredEvidence) -> str:
    if not held.trained(_CASE):
        return _why(held)
    return (
        "not reached by a stored training: "
        f"ddlplan launch --use-case {_CASE} --epochs N trains longer"
    )
