"""Figures of a sweep: time per epoch, speed against the first devices, accuracy and loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from planner.quantities import format_count, format_interval, format_range, format_value
from planner.report.figures.batch_plot import BatchCurve, BatchPoint, batch_plot
from planner.report.figures.figure import Figure, drawn_figures
from planner.sweeps.findings import PointFigures, all_figures, percent
from planner.sweeps.sweep_record import StoredSweep
from planner.trials.result import Outcome
from probes.timing import Interval

_Value = Callable[[PointFigures], Interval | float | None]
"""Gives what is drawn of a point, with an interval where there is one."""


def sweep_figures(sweep: StoredSweep) -> list[Figure]:
    """Give the plots that a sweep has values for."""
    record, figures = sweep.record, all_figures(sweep)
    first = record.settings[0].label
    after = f"on the test set after {format_count(record.epochs, 'epoch')}"
    return drawn_figures(
        _figure(
            sweep,
            figures,
            lambda one: one.epoch_s or one.rough_epoch_s,
            format_range,
            title="Time per epoch",
            y_title="seconds per epoch",
            note="Steps alone, without start and validation. Bars are 95 % intervals for another "
            "run on this machine at another time: they have its drift in them.",
        ),
        _figure(
            sweep,
            figures,
            lambda one: one.speedup,
            format_interval,
            title=f"Speed against {first}",
            y_title="times as fast",
            reference=(f"as fast as {first}", 1.0),
            first=1,
            note="Bars are 95 % intervals, turn by turn at the same batch: what slowed both "
            "settings cancels out.",
        ),
        _figure(
            sweep,
            figures,
            lambda one: one.accuracy and one.accuracy.scaled(100),
            lambda shown: percent(shown.scaled(0.01)),
            title=f"Accuracy {after}",
            y_title="% right",
            from_zero=False,
            note=f"Bars are 95 % intervals of a share of {record.test_samples} test samples, after "
            f"one training each with seed {record.seed}.",
        ),
        _figure(
            sweep,
            figures,
            lambda one: one.loss,
            format_range,
            title=f"Loss {after}",
            y_title="loss",
            from_zero=False,
            note=f"After one training each with seed {record.seed}, which shows no interval.",
        ),
    )


def _figure(
    sweep: StoredSweep,
    figures: Sequence[PointFigures],
    value: _Value,
    text: Callable[[Interval], str],
    *,
    title: str,
    y_title: str,
    from_zero: bool = True,
    reference: tuple[str, float] | None = None,
    first: int = 0,
    note: str,
) -> Figure | None:
    """Draw a value of each point, from a setting on; ``None`` where none has it."""
    settings = list(enumerate(sweep.record.settings))[first:]
    found = {(one.point.setting, one.point.batch): value(one) for one in figures}
    if all(shown is None for shown in found.values()):
        return None
    failed = {
        (one.point.setting, one.point.batch)
        for one in figures
        if one.point.outcome is not Outcome.OK
    }
    curves = [
        BatchCurve(
            label=setting.label,
            points=[
                _point(batch, found[number, batch], has_failed=(number, batch) in failed)
                for batch in sweep.record.batches
                if (number, batch) in found
            ],
        )
        for number, setting in settings
    ]
    return Figure(
        title=title,
        svg=batch_plot(
            curves,
            title=f"{title} over batches, a curve for each of the devices",
            y_title=y_title,
            from_zero=from_zero,
            reference=reference,
            first_colour=first,
        ),
        columns=("batch", *(setting.label for _, setting in settings)),
        rows=[
            (
                str(batch),
                *(_cell(found.get((number, batch)), text) for number, _ in settings),
            )
            for batch in sweep.record.batches
        ],
        note=note,
    )


def _point(batch: int, found: Interval | float | None, *, has_failed: bool) -> BatchPoint:
    if isinstance(found, Interval):
        return BatchPoint(batch=batch, value=found.median, low=found.low, high=found.high)
    return BatchPoint(batch=batch, value=found, has_failed=has_failed)


def _cell(found: Interval | float | None, text: Callable[[Interval], str]) -> str:
    if isinstance(found, Interval):
        return text(found)
    return "" if found is None else format_value(found)
