"""Plots of papers as figures with the tables behind them, and as CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.paper_tables._values import CurvePlot, PaperPlot, SweepPlots, UsagePlots
from planner.quantities import format_interval
from planner.records.usage_record import GPU_QUANTITIES, QUANTITIES, HostUsage, UsageCurve
from planner.report.figures.curves import Curve, line_plot
from planner.report.figures.figure import Figure
from planner.report.figures.sweep_figures import sweep_figures
from planner.report.figures.usage_figures import learning_figures, machine_use_figures
from planner.report.sweeps.tables import sweep_csv
from planner.report.table import render_csv


def paper_figures(plot: PaperPlot) -> list[Figure]:
    """Give the figures of a plot; none where nothing is measured."""
    match plot:
        case CurvePlot():
            return [_curve_figure(plot)] if plot.curves else []
        case SweepPlots(sweep=sweep):
            return [] if sweep is None else sweep_figures(sweep)
        case UsagePlots():
            return [*machine_use_figures(plot.usage), *learning_figures(plot.usage)]


def paper_plot_csv(plot: PaperPlot) -> str:
    """Give the numbers of a plot as CSV; empty where nothing is measured."""
    match plot:
        case CurvePlot():
            rows: list[Mapping[str, object]] = [
                {
                    "curve": curve.label,
                    "x": x,
                    "y": y.median,
                    "y_ci_low": y.low,
                    "y_ci_high": y.high,
                }
                for curve in plot.curves
                for x, y in curve.points
            ]
            fields = ("curve", "x", "y", "y_ci_low", "y_ci_high")
            return render_csv(rows, fields) if rows else ""
        case SweepPlots(sweep=sweep):
            return "" if sweep is None else sweep_csv(sweep)
        case UsagePlots():
            if not plot.usage:
                return ""
            most = max((len(use.gpus) for use in plot.usage.values()), default=0)
            gpu_fields = [
                f"gpu{number}_{name}" for number in range(most) for name in GPU_QUANTITIES
            ]
            rows = [
                row | {"data": "generated" if label in plot.made_up else None}
                for label, use in plot.usage.items()
                for row in _use_rows(label, use)
            ]
            return render_csv(rows, ("line", "time_s", *QUANTITIES, *gpu_fields, "data"))


def _curve_figure(plot: CurvePlot) -> Figure:
    curves = [
        Curve(
            label=curve.label,
            points=[(x, y.median) for x, y in curve.points],
            spread=[(x, y.low, y.high) for x, y in curve.points],
        )
        for curve in plot.curves
    ]
    return Figure(
        title=plot.title,
        svg=line_plot(
            curves,
            title=plot.title,
            x_title=plot.x_title,
            y_title=plot.y_title,
            is_counted=True,
        ),
        columns=(plot.x_title, *(curve.label for curve in plot.curves)),
        rows=_curve_rows(plot),
    )


def _curve_rows(plot: CurvePlot) -> Sequence[Sequence[str]]:
    by_curve = [dict(curve.points) for curve in plot.curves]
    places = sorted({x for points in by_curve for x in points})
    return [(f"{x:g}", *(format_interval(points.get(x)) for points in by_curve)) for x in places]


def _use_rows(label: str, use: HostUsage) -> list[dict[str, object]]:
    curves: dict[str, UsageCurve | None] = {name: getattr(use, name) for name in QUANTITIES}
    for number, gpu in enumerate(use.gpus):
        curves |= {f"gpu{number}_{name}": getattr(gpu, name) for name in GPU_QUANTITIES}
    return [
        {"line": label, "time_s": time_s}
        | {name: curve.mean[n] for name, curve in curves.items() if curve is not None}
        for n, time_s in enumerate(use.time_s)
    ]
