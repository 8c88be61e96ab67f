"""Figures of hosts together: subsets, what each host is worth, predictions beside measurements."""

from __future__ import annotations

from collections.abc import Sequence

from planner.cluster.links import MeasuredLinks
from planner.cluster.node_choice import NodeChoice
from planner.quantities import format_bytes, format_count, format_number, format_seconds
from planner.records.training_record import TrainingRecord
from planner.report.figures.curves import Curve, line_plot
from planner.report.figures.figure import Figure
from planner.report.figures.rows import Mark, bar_plot, point_plot

_SHOWN, _IN_TABLE = 10, 64


def subsets_figure(choice: NodeChoice) -> Figure:
    """Show the predicted speed of the fastest subsets, of the chosen one and of single hosts."""
    alone = [one for one in choice.predictions if len(one.hosts) == 1]
    wanted = [*choice.predictions[:_SHOWN], choice.chosen, *alone[:_SHOWN]]
    shown = sorted(set(wanted), key=choice.predictions.index)
    marks = [
        Mark(
            label=("chosen: " if one == choice.chosen else "") + " + ".join(one.hosts),
            value=one.throughput_samples_per_s,
            text=format_number(one.throughput_samples_per_s),
            is_main=one == choice.chosen,
        )
        for one in shown
    ]
    return Figure(
        title="Every subset, predicted",
        svg=bar_plot(marks, title="predicted samples per second by subset", unit="samples/s"),
        columns=("hosts", "global batch", "step", "network", "samples/s"),
        rows=[
            (
                " ".join(one.hosts),
                str(one.global_batch),
                format_seconds(one.step_s),
                format_seconds(one.wire_s) if one.wire_s else "",
                format_number(one.throughput_samples_per_s),
            )
            for one in choice.predictions[:_IN_TABLE]
        ],
        note=f"{format_count(len(choice.predictions), 'subset')} predicted."
        + ("" if len(choice.predictions) <= len(shown) else f" {len(shown)} are drawn."),
    )


def gains_figure(choice: NodeChoice) -> Figure | None:
    """Show what each host adds to the job, or would add; ``None`` where that is not known."""
    known = [(one, 100 * one.gain) for one in choice.gains if one.gain is not None]
    if not known:
        return None
    marks = [
        Mark(
            label=one.host,
            value=percent,
            text=f"{percent:+.0f} %" + ("" if one.is_used else ", left out"),
            is_model=not one.is_used,
        )
        for one, percent in known
    ]
    return Figure(
        title="What each host is worth",
        svg=point_plot(
            marks, title="change of samples per second by host", unit="% of the job's samples/s"
        ),
        columns=("host", "used", "adds"),
        rows=[
            (one.host, "yes" if one.is_used else "no", f"{percent:+.1f} %")
            for one, percent in known
        ],
        note="Samples/s with the host over those without it. Hollow points are hosts left out.",
    )


def sums_figure(network: MeasuredLinks) -> Figure | None:
    """Show the time of an all-reduce by the size of its message; ``None`` where none was timed."""
    if len(network.sums) < 2:
        return None
    idle = Curve(
        label="hosts idle",
        points=[(one.message_bytes / 2**20, 1000 * one.time_s) for one in network.sums],
    )
    busy = [
        (one.message_bytes / 2**20, None if one.beside_s is None else 1000 * one.beside_s)
        for one in network.sums
    ]
    curves = [idle]
    if any(time is not None for _, time in busy):
        curves.append(Curve(label="all cores compute", points=busy))
    return Figure(
        title="Time of a gradient sum over all hosts, by its size",
        svg=line_plot(curves, title="time of an all-reduce", x_title="MiB of a host", y_title="ms"),
        columns=("message", "hosts idle", "all cores compute"),
        rows=[
            (
                format_bytes(one.message_bytes),
                format_seconds(one.time_s),
                "" if one.beside_s is None else format_seconds(one.beside_s),
            )
            for one in network.sums
        ],
    )


def launches_figure(trainings: Sequence[TrainingRecord]) -> Figure | None:
    """Show how far trainings on several hosts were from their prediction; ``None`` without any."""
    marks, rows = [], []
    for one in trainings:
        expected, last = one.expected_samples_per_s, one.last_trained
        if expected is None or last is None:
            continue
        measured = last.throughput_samples_per_s
        off = 100 * (measured / expected - 1)
        hosts = [host.host for host in one.hosts]
        marks.append(
            Mark(
                label=f"{one.id}: {' + '.join(hosts)}",
                value=off,
                text=f"{format_number(measured)} of {format_number(expected)}, {off:+.0f} %",
            )
        )
        rows.append(
            (
                str(one.id),
                " ".join(hosts),
                format_number(expected),
                format_number(measured),
                f"{off:+.1f} %",
            )
        )
    if not marks:
        return None
    return Figure(
        title="Launches: measured beside predicted",
        svg=point_plot(
            marks, title="measured against predicted samples per second", unit="% of the prediction"
        ),
        columns=("training", "hosts", "predicted", "measured, last epoch", "difference"),
        rows=rows,
        note="Samples/s of the last epoch against what was predicted before the training began.",
    )
