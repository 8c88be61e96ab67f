"""CIFAR-10 over 1 ... k workers: throughput, and time to an accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from planner.paper_tables._base import Paper
from planner.paper_tables._evidence import (
    StoredEvidence,
    SweepEvidence,
    describe_machine,
    mark_generated,
)
from planner.paper_tables._reasons import (
    data_option,
    db_option,
    measure_command,
    why_devices_lack,
    why_no_gpus,
)
from planner.paper_tables._training_groups import (
    Group,
    Line,
    find_curves,
    find_one_worker,
    find_targets,
    group_trainings,
)
from planner.paper_tables._values import Cell, CurvePlot, MeasuredCurve, PaperTable, TableColumn
from planner.paper_tables._wanted import Wanted, WantedSweep, sweep_key
from planner.paper_tables._worker_sweep import (
    TARGETS,
    WORKER_COLUMNS,
    WorkerSweep,
    begins_with_one_worker,
)
from planner.quantities import format_count
from planner.sweeps.device_settings import make_device_settings
from planner.sweeps.findings import share_interval
from planner.sweeps.sweep_record import SweepRecord
from planner.trainings.rates import ratio_of_trainings
from probes.hardware import Hardware

_CASE = "cifar_resnet44"
_TEST_SAMPLES = 10_000
"""Of CIFAR-10, and of what is drawn in its place."""

_IMAGES, _RATE, _BATCH, _EPOCHS = 2000, 0.01, 32, 8
_MEASURED = f"{_CASE},images={_IMAGES},lr={_RATE}"
"""What a report measures: an epoch of all 50,000 images takes minutes on a few cores, and at the
learning rate of 0.1 so few steps teach this network nothing."""

_WHAT = (
    f"Measured with the first {_IMAGES:,} images and learning rate {_RATE}; numbers of workers "
    f"take turns. ddlplan report --measure takes batch {_BATCH} and {_EPOCHS} epochs for each, and "
    "no more workers than a batch has samples."
)
_PUBLISHED_ACCURACY = 92.83
_PUBLISHED = (
    "He, Zhang, Ren and Sun, Deep Residual Learning for Image Recognition, 2016, "
    "https://arxiv.org/abs/1512.03385: ResNet-44 has a test error of 7.17 % on CIFAR-10, trained "
    "on two GPUs in batches of 128"
)

_TRAINING_COLUMNS = (
    TableColumn(key="machine", title="Machine"),
    TableColumn(key="data", title="Data"),
    TableColumn(key="training", title="Training"),
    TableColumn(key="workers", title="Workers", is_number=True),
    TableColumn(key="each", title="Each with", may_drop=True),
    TableColumn(key="plan", title="Strategy", may_drop=True),
    TableColumn(key="hosts", title="Hosts", is_number=True, may_drop=True),
    TableColumn(key="trainings", title="Trainings", is_number=True, may_drop=True),
    TableColumn(key="rate", title="Samples/s", is_number=True),
    TableColumn(key="scaling", title="Times one worker", is_number=True),
    TableColumn(key="target", title="Accuracy to reach, %", is_number=True),
    TableColumn(key="time", title="s to it", is_number=True),
    TableColumn(key="accuracy", title="Best accuracy, %", is_number=True),
    TableColumn(key="published_accuracy", title="Published accuracy, %", is_number=True),
)


class CifarScaling(Paper):
    """The CIFAR-10 network of He et al. over workers."""

    name = "cifar_scaling"
    order = 3
    title = "CIFAR-10 with ResNet-44: scaling over workers"
    citation = _PUBLISHED
    use_cases = (_CASE, _MEASURED)

    def tables(self, held: StoredEvidence) -> Sequence[PaperTable]:
        return [_scaling_table(held), _training_table(held)]

    def plots(self, held: StoredEvidence) -> Sequence[CurvePlot]:
        sweeps, groups = _sweeps(held), group_trainings(held.trained(_CASE))
        targets = find_targets(groups)
        rates = tuple(_sweep_curves(sweeps, to_target=False))
        times = tuple(_sweep_curves(sweeps, to_target=True))
        trained_rates = tuple(_training_curves(groups, None))
        trained_times = tuple(_training_curves(groups, targets))
        made_up = [
            *(one.sweep.record.data is None for one in sweeps),
            *(training.is_generated for group in groups for training in group.trainings),
        ]
        missed = f"no sweep has reached {100 * TARGETS[-1]:g} % on the test set"
        return [
            CurvePlot(
                key="cifar-throughput",
                title=mark_generated("CIFAR-10: samples per second over workers", made_up),
                x_title="workers",
                y_title="samples/s",
                curves=rates + trained_rates,
                notes=_plot_notes(rates, trained_rates, _why(held)),
            ),
            CurvePlot(
                key="cifar-time-to-accuracy",
                title=mark_generated("CIFAR-10: time to an accuracy on the test set", made_up),
                x_title="workers",
                y_title="seconds",
                curves=times + trained_times,
                notes=_plot_notes(times, trained_times, missed if rates else _why(held)),
            ),
        ]

    def wanted(self, held: StoredEvidence, node: Hardware) -> Sequence[Wanted]:
        if any(
            sweep.record.fingerprint == node.fingerprint()
            and sweep.record.is_finished
            and held.suits(_MEASURED, sweep.record.data)
            and _is_complete(sweep.record)
            for sweep in held.swept(_MEASURED)
        ):
            return []
        settings = make_device_settings((), node, least_batch=_BATCH)
        devices = tuple(setting.plan.processes for setting in settings)
        return [
            WantedSweep(
                use_case=_MEASURED, batches=(_BATCH,), devices=devices, epochs=_EPOCHS, weight=4.0
            )
        ]


def _is_complete(record: SweepRecord) -> bool:
    """Tell whether a sweep has what a report measures, which one of a user's own may not."""
    return _BATCH in record.batches and begins_with_one_worker(record)


def _sweeps(held: StoredEvidence) -> list[WorkerSweep]:
    """Give the latest sweep of each machine, of the data asked for and a finished one first."""

    def rank(sweep: SweepEvidence) -> tuple[bool, bool, bool, int]:
        record = sweep.record
        suits = held.suits(_MEASURED, record.data)
        return suits, record.is_finished, _is_complete(record), record.id or 0

    ordered = sorted(held.swept(_MEASURED), key=rank)
    latest = {sweep.record.node: sweep for sweep in ordered}
    return [WorkerSweep(latest[node].sweep) for node in sorted(latest)]


def _scaling_table(held: StoredEvidence) -> PaperTable:
    sweeps = _sweeps(held)
    missing = {
        "devices": Cell(text="1 worker"),
        "published": Cell.published(None),
        "rate": Cell.lacking(_why(held)),
    }
    return PaperTable(
        key="cifar-scaling",
        title="Scaling over workers, with fewer images",
        columns=WORKER_COLUMNS,
        rows=tuple(_scaling_rows(held, sweeps)) or (missing,),
        notes=(
            _WHAT,
            "The time to an accuracy is that of all epochs up to the first that has it, with "
            "their validation and without the start. Its interval is that of the time of their "
            "steps, and holds for this seed.",
            *(held.describe_sweep(one.sweep.record) for one in sweeps),
            "Published figures of scaling over workers: not found here.",
        ),
    )


def _scaling_rows(
    held: StoredEvidence, sweeps: Sequence[WorkerSweep]
) -> Iterator[Mapping[str, Cell]]:
    for one in sweeps:
        yield from one.rows(held)
        record = one.sweep.record
        for devices, why in (
            ("others", why_devices_lack(held, record, _sweep_command(held, record))),
            ("GPUs", why_no_gpus(held, record)),
        ):
            if why is not None:
                yield {
                    "machine": Cell(text=record.node),
                    "data": Cell(text=record.data or "generated"),
                    "devices": Cell(text=devices),
                    "published": Cell.published(None),
                    "rate": Cell.lacking(why),
                }


def _training_table(held: StoredEvidence) -> PaperTable:
    groups = group_trainings(held.trained(_CASE))
    named = {study.record.node for study in held.of(_CASE)}
    machines = (group.place.line.machine for group in groups)
    rows = [*_training_rows(held, groups)]
    if not rows:
        why = f"no training of all images is stored: {_launch_command(held)}"
        rows.append({"machine": Cell(text="any"), "rate": Cell.lacking(why)})
    rows.append(
        {
            "machine": Cell(text="He et al."),
            "data": Cell(text="CIFAR-10"),
            "published_accuracy": Cell.published(_PUBLISHED_ACCURACY),
        }
    )
    return PaperTable(
        key="cifar-trainings",
        title="Stored trainings with all images",
        columns=_TRAINING_COLUMNS,
        rows=tuple(rows),
        source=_PUBLISHED,
        notes=(
            "Compared with each other are trainings of one machine, data, batch, number of epochs "
            "and numerics, whose workers compute with as much. They ran at different times: how "
            "far the machine drifts is in their ratios.",
            "Trainings that are the same in all of that are one row. A time is given where none of "
            "them has missed the accuracy. One alone shows no spread of it: that interval is from "
            "half to twice.",
            *map(describe_machine, held.of(_CASE)),
            *held.describe_hosts(name for name in machines if name not in named),
        ),
    )


def _training_rows(held: StoredEvidence, groups: Sequence[Group]) -> Iterator[Mapping[str, Cell]]:
    targets = find_targets(groups)
    for group in groups:
        place, line = group.place, group.place.line
        one, target = find_one_worker(groups, place), targets.get(group.place.line)
        rate = group.rate
        assert rate is not None  # others are in no group
        row = {
            "machine": Cell(text=line.machine),
            "data": Cell(text=line.data),
            "training": Cell(text=_describe(line)),
            "workers": Cell.counted(place.workers),
            "each": Cell(text=line.each),
            "plan": Cell(text=place.strategies),
            "hosts": Cell.counted(place.hosts),
            "trainings": Cell.counted(len(group.trainings)),
            "rate": Cell.measured(rate),
            "time": Cell.of(group.time(target), _why_no_time(held, group, target)),
            "accuracy": Cell.lacking("no epoch was validated"),
        }
        if one is None or one.rate is None:
            row["scaling"] = Cell.lacking(
                f"no such training with one worker ({line.each}) is stored"
            )
        elif one is not group:
            row["scaling"] = Cell.measured(ratio_of_trainings(one.rate, rate))
        if target is not None:
            row["target"] = Cell.counted(100 * target)
        if group.accuracy:
            share = share_interval(group.accuracy, _TEST_SAMPLES)
            row["accuracy"] = Cell.measured(share.scaled(100))
        yield row


def _sweep_curves(sweeps: Sequence[WorkerSweep], *, to_target: bool) -> Iterator[MeasuredCurve]:
    for one in sweeps:
        data = Path(one.sweep.record.data or "generated").name
        target = f", to {100 * one.target:g} %" if to_target and one.target is not None else ""
        for batch in one.sweep.record.batches:
            label = f"{one.sweep.record.node}: {data}, {_IMAGES:,} images, batch {batch}{target}"
            if points := one.points(batch, to_target=to_target):
                yield MeasuredCurve(label=label, points=tuple(points))


def _training_curves(
    groups: Sequence[Group], targets: Mapping[Line, float] | None
) -> Iterator[MeasuredCurve]:
    """Give rates over the number of workers, or times where there are targets."""
    for same in find_curves(groups):
        place, line = same[-1].place, same[-1].place.line
        target = None if targets is None else targets.get(line)
        values = [(one, one.rate if targets is None else one.time(target)) for one in same]
        points = [(one.place.workers, y) for one, y in values if y is not None]
        label = f"{line.machine}: {Path(line.data).name}, {_describe(line)}, {place.strategies}"
        if place.hosts > 1:
            label += f" on {place.hosts} hosts"
        if target is not None:
            label += f", to {100 * target:g} %"
        if points:
            yield MeasuredCurve(label=label, points=tuple(points))


def _describe(line: Line) -> str:
    epochs = format_count(line.epochs, "epoch")
    return f"batch {line.batch}, {epochs}{', ' * bool(line.numerics)}{line.numerics}"


def _plot_notes(
    swept: Sequence[MeasuredCurve], trained: Sequence[MeasuredCurve], why: str
) -> tuple[str, ...]:
    """Say what was swept, or why there is no sweep; curves of trainings say it in their names."""
    if swept:
        return (_WHAT,)
    return (f"{'with fewer images: ' if trained else ''}missing: {why}.",)


def _why(held: StoredEvidence) -> str:
    why = f"not measured: {measure_command(held)}"
    return held.reasons.get(sweep_key(_MEASURED), why)


def _why_no_time(held: StoredEvidence, group: Group, target: float | None) -> str:
    if target is not None and group.reached(target):
        missed = group.missed(target)
        return f"{missed} of {len(group.trainings)} trainings missed it: a time would be too short"
    return f"not reached: {_launch_command(held)} trains longer"


def _sweep_command(held: StoredEvidence, record: SweepRecord) -> str:
    """Give the command of a sweep with all numbers of devices."""
    batches = ",".join(map(str, record.batches))
    options = f"{data_option(record.data)} --batches {batches} --epochs {record.epochs}"
    return f"ddlplan sweep --use-case {record.use_case}{options}{db_option(held)}"


def _launch_command(held: StoredEvidence) -> str:
    return f"ddlplan launch --use-case {_CASE} --epochs N{db_option(held)}"
