"""Plot over batches: points with intervals on an axis of doublings, a curve for each setting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from planner.report.figures.axes import CHARACTER, WIDTH, Axis, beside, draw_below, path, svg
from planner.report.figures.curves import draw_legend, left_of, line_through, style, value_axis

_RIGHT, _HEIGHT, _BELOW = 18.0, 190.0, 40.0
_APART = 5.0
"""Between the intervals of two settings at one batch, which would hide each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPoint:
    """A value at a batch."""

    batch: int
    value: float | None
    """``None`` where it is not known."""

    low: float | None = None
    high: float | None = None

    has_failed: bool = False
    """Whether the training failed: that is why nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCurve:
    """Values of one setting."""

    label: str
    points: Sequence[BatchPoint]
    """By batch."""


def batch_plot(
    curves: Sequence[BatchCurve],
    *,
    title: str,
    y_title: str,
    from_zero: bool = True,
    reference: tuple[str, float] | None = None,
    first_colour: int = 0,
) -> str:
    """Draw values over batches, each batch a tick, with 95 % intervals as bars; see `line_plot`.

    With a ``first_colour`` a setting has the same one in all plots.
    """
    shown = list(enumerate(curves, first_colour))
    known = [p for _, curve in shown for p in curve.points if p.value is not None]
    values = [v for p in known for v in (p.value, p.low, p.high) if v is not None]
    batches = sorted({p.batch for _, curve in shown for p in curve.points})
    has_failed = any(p.has_failed for _, curve in shown for p in curve.points)
    names = [(f"curve {style(number)}", curve.label) for number, curve in shown]
    names += [("whisker", "95 % interval")] if any(p.low is not None for p in known) else []
    names += [("reference", reference[0])] if reference is not None else []
    names += [("crosses", "failed")] if has_failed else []
    legend, top = draw_legend(names)
    bottom = top + _HEIGHT
    level = [] if reference is None else [reference[1]]
    y_axis = value_axis([*values, *level], top, bottom, from_zero=from_zero)
    left = left_of(y_axis)
    places = [math.log2(batch) for batch in batches]
    margin = 0.04 * (places[-1] - places[0]) or 0.5
    x_axis = Axis(places[0] - margin, places[-1] + margin, left, WIDTH - _RIGHT)
    parts = [legend, _batches_below(x_axis, batches, top, bottom)]
    parts.append(beside(y_axis, left, x_axis.end, y_title))
    if reference is not None:
        y = y_axis.at(reference[1])
        parts.append(path("reference", f"M{left:.1f} {y:.1f}H{x_axis.end:.1f}"))
    for place, (number, curve) in enumerate(shown):
        aside = _APART * (place - (len(shown) - 1) / 2)
        parts.append(_draw(curve, number, x_axis, y_axis, aside, bottom))
    return svg("".join(parts), bottom + _BELOW, title)


def _draw(
    curve: BatchCurve, number: int, x_axis: Axis, y_axis: Axis, aside: float, bottom: float
) -> str:
    places: list[tuple[float, float | None]] = []
    bars = crosses = ""
    for point in curve.points:
        x = x_axis.at(math.log2(point.batch)) + aside
        places.append((x, None if point.value is None else y_axis.at(point.value)))
        if point.value is None and point.has_failed:
            crosses += f"M{x - 3.5:.1f} {bottom - 10:.1f}l7 7m0 -7l-7 7"
        if point.low is not None and point.high is not None:
            low, high = y_axis.at(point.low), y_axis.at(point.high)
            bars += f"M{x:.1f} {low:.1f}V{high:.1f}"
            bars += "".join(f"M{x - 3:.1f} {end:.1f}h6" for end in (low, high))
    dots = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in places if y is not None)
    return (
        path("whisker", bars)
        + path(f"curve {style(number)}", line_through(places))
        + path(f"marks {style(number)}", dots)
        + path("crosses", crosses)
    )


def _batches_below(axis: Axis, batches: Sequence[int], top: float, bottom: float) -> str:
    """Draw the axis below: a grid line for each batch, and as many of their names as have room."""
    ticks, free = list[tuple[float, str]](), -math.inf
    for batch in batches:
        x, name = axis.at(math.log2(batch)), str(batch)
        half = CHARACTER * len(name) / 2
        has_room = x - half >= free
        ticks.append((x, name if has_room else ""))
        free = x + half + CHARACTER if has_room else free
    return draw_below(axis, ticks, top, bottom, "batch, samples per step")
