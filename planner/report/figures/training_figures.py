"""Figures of trainings: losses, rates and times of their epochs, alone or side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from launch.reports import EpochDone
from planner.quantities import format_duration, format_number, format_value
from planner.records.training_record import TrainingRecord
from planner.report.figures.curves import Curve, line_plot
from planner.report.figures.figure import Figure, drawn_figures
from planner.scripts.naming import describe_trained, is_script

Item = TypeVar("Item")

_MOST_ROWS = 100


def epoch_figures(training: TrainingRecord) -> list[Figure]:
    """Show the losses and the rates of a training's epochs; nothing before the first has ended."""
    return drawn_figures(loss_figure(training), rate_figure(training))


def loss_figure(training: TrainingRecord) -> Figure | None:
    """Show the losses of a training's epochs; ``None`` before the first has ended.

    Of a script nobody knows any.
    """
    epochs = training.epochs_done
    if not epochs or is_script(training.use_case):
        return None
    curves = [
        Curve(label="training", points=[(one.epoch, _finite(one.train_loss)) for one in epochs])
    ]
    if any(_finite(one.validation_loss) is not None for one in epochs):
        points = [(one.epoch, _finite(one.validation_loss)) for one in epochs]
        curves.append(Curve(label="validation", points=points))
    metrics = sorted({name for one in epochs for name in one.metrics})
    return Figure(
        title="Loss",
        svg=_over_epochs(curves, training.epochs, title="loss over epochs", y_title="loss")
        if any(y is not None for curve in curves for _, y in curve.points)
        else "",
        columns=("epoch", "training", "validation", *metrics),
        rows=[
            (
                str(one.epoch),
                _cell(one.train_loss if one.samples else None),
                _cell(one.validation_loss),
                *(_cell(one.metrics.get(name)) for name in metrics),
            )
            for one in _some(epochs)
        ],
    )


def rate_figure(training: TrainingRecord) -> Figure | None:
    """Show samples per second of a training's epochs beside what was predicted."""
    epochs = training.epochs_done
    if not epochs:
        return None
    expected = training.expected_samples_per_s
    curve = Curve(label="measured", points=[(one.epoch, _rate(one)) for one in epochs])
    return Figure(
        title="Samples per second",
        svg=_over_epochs(
            [curve],
            training.epochs,
            title="samples per second over epochs",
            y_title="samples/s",
            from_zero=True,
            reference=None if expected is None else ("predicted", expected),
        )
        if any(map(_rate, epochs))
        else "",
        columns=("epoch", "samples/s", "training took", "validation took"),
        rows=[
            (
                str(one.epoch),
                format_number(rate) if (rate := _rate(one)) else "",
                format_duration(one.train_time_s),
                format_duration(one.validation_time_s),
            )
            for one in _some(epochs)
        ],
    )


def compared_figures(trainings: Sequence[TrainingRecord]) -> list[Figure]:
    """Show losses and rates of several trainings."""
    values: Sequence[tuple[str, str, Callable[[EpochDone], float | None], bool]] = (
        ("Training loss", "loss", lambda one: _finite(one.train_loss), False),
        ("Validation loss", "loss", lambda one: _finite(one.validation_loss), False),
        ("Samples per second", "samples/s", _rate, True),
    )
    found = []
    for title, unit, value, from_zero in values:
        curves = [
            Curve(
                label=f"{one.id}: {_name(one.use_case)}",
                points=[(epoch.epoch, value(epoch)) for epoch in one.epochs_done],
            )
            for one in trainings
        ]
        curves = [c for c in curves if any(y is not None for _, y in c.points)]
        if not curves:
            continue
        by_epoch = [dict(curve.points) for curve in curves]
        numbers = sorted({x for points in by_epoch for x in points})
        found.append(
            Figure(
                title=title,
                svg=_over_epochs(
                    curves,
                    round(numbers[-1]),
                    title=f"{title} over epochs",
                    y_title=unit,
                    from_zero=from_zero,
                ),
                columns=("epoch", *(curve.label for curve in curves)),
                rows=[
                    (f"{x:.0f}", *(_cell(points.get(x)) for points in by_epoch))
                    for x in _some(numbers)
                ],
            )
        )
    return found


def _over_epochs(
    curves: Sequence[Curve],
    epochs: int,
    *,
    title: str,
    y_title: str,
    from_zero: bool = False,
    reference: tuple[str, float] | None = None,
) -> str:
    return line_plot(
        curves,
        title=title,
        x_title="epoch",
        y_title=y_title,
        from_zero=from_zero,
        reference=reference,
        ends=(1.0, float(max(2, epochs))),
        is_counted=True,
    )


def _some(items: Sequence[Item]) -> Sequence[Item]:
    """Give a table's rows of a long list: every so many, and the last."""
    step = math.ceil(len(items) / _MOST_ROWS) or 1
    return [item for n, item in enumerate(items, 1) if n % step == 0 or n == len(items)]


def _rate(epoch: EpochDone) -> float | None:
    """Give samples/s; ``None`` of an epoch that a checkpoint had, which was only validated."""
    return epoch.throughput_samples_per_s or None


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def _name(use_case: str) -> str:
    """Give a script's command, or the object of a use case without its place."""
    if is_script(use_case):
        return describe_trained(use_case)
    return use_case.rpartition(":")[2]


def _cell(value: float | None) -> str:
    return "" if value is None else format_value(value)
