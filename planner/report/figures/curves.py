"""Curves: lines over a common axis, and trials as points with the best of them so far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from textwrap import wrap

from planner.quantities import printable
from planner.report.figures.axes import (
    CHARACTER,
    WIDTH,
    Axis,
    below,
    beside,
    path,
    svg,
    tick_text,
    word,
)

_MOST_POINTS = 180
"""Of one curve: more than a plot has pixels for on a phone."""

_MOST_IN_ALL = 540

_STYLES = 6
"""Colours of curves in the style sheet, and as many dashes."""

_LEAST_LEFT, _RIGHT = 36.0, 14.0
_LINE = 20.0
_TEXT = 34.0
"""Between the beginning of a line's sample in a legend and its name."""

_MOST_LINES = 3
"""Of a name in a legend."""

_HEIGHT = 170.0
_ASIDE = 0.04
"""Part of the axis below that is free at its ends: an interval there is not on the axis beside."""

_AXIS = 40.0
_FEW = 24

Points = Sequence[tuple[float, float | None]]
"""Pairs of x and y, by x; a curve is interrupted where y is ``None``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line of a plot."""

    label: str
    points: Points

    spread: Sequence[tuple[float, float, float]] = ()
    """Intervals around points: x, and the two ends of y."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPoint:
    """A trial in a plot."""

    x: float
    value: float | None
    """``None`` where it failed, or had no time."""

    low: float | None = None
    high: float | None = None
    best: float | None = None
    """Best value up to it."""

    was_ended: bool = False
    """Whether it was ended early, because it was slower."""


def line_plot(
    curves: Sequence[Curve],
    *,
    title: str,
    x_title: str,
    y_title: str,
    from_zero: bool = True,
    reference: tuple[str, float] | None = None,
    ends: tuple[float, float] | None = None,
    is_counted: bool = False,
) -> str:
    """Draw lines, each with its own dashes and a legend above them.

    Args:
        curves: Each with at least one value.
        title: For those who do not see it.
        x_title: What the axis below shows, with its unit.
        y_title: What the axis beside shows, with its unit.
        from_zero: Whether the axis beside begins at 0.
        reference: A level to hold them against, with its name.
        ends: Of the axis below; those of the points where they are not given.
        is_counted: Whether the axis below has whole numbers only.
    """
    values = [y for curve in curves for _, y in curve.points if y is not None]
    values += [end for curve in curves for _, low, high in curve.spread for end in (low, high)]
    level = [] if reference is None else [reference[1]]
    places = [x for curve in curves for x, _ in curve.points]
    first, last = ends or (min(places), max(places))
    names = [(f"curve {style(number)}", curve.label) for number, curve in enumerate(curves)]
    has_spread = any(curve.spread for curve in curves)
    if has_spread:
        names.append(("spread", "95 % interval"))
    if reference is not None:
        names.append(("reference", reference[0]))
    legend, top = draw_legend(names if len(names) > 1 else [])
    bottom = top + _HEIGHT
    y_axis = value_axis([*values, *level], top, bottom, from_zero=from_zero)
    left = left_of(y_axis)
    end = last if last > first else first + 1
    aside = _ASIDE * (end - first) if has_spread else 0.0
    x_axis = Axis(first - aside, end + aside, left, WIDTH - _RIGHT, is_counted)
    parts = [
        legend,
        below(x_axis, top, bottom, x_title),
        beside(y_axis, left, x_axis.end, y_title),
    ]
    if reference is not None:
        parts.append(path("reference", f"M{left:.1f} {y_axis.at(reference[1]):.1f}H{x_axis.end}"))
    most = min(_MOST_POINTS, _MOST_IN_ALL // len(curves))
    for number, curve in enumerate(curves):
        known = [(x, y if y is not None and math.isfinite(y) else None) for x, y in curve.points]
        points = thin(known, most)
        spread = "".join(
            f"M{x_axis.at(x):.1f} {y_axis.at(low):.1f}V{y_axis.at(high):.1f}"
            for x, low, high in curve.spread
        )
        parts.append(path("spread", spread))
        places_of = [(x_axis.at(x), None if y is None else y_axis.at(y)) for x, y in points]
        parts.append(path(f"curve {style(number)}", line_through(places_of)))
        marked = places_of if len(points) <= _FEW else _lone(places_of)
        dots = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in marked if y is not None)
        parts.append(path(f"marks {style(number)}", dots))
    return svg("".join(parts), bottom + _AXIS, title)


def trial_plot(trials: Sequence[TrialPoint], *, title: str, x_title: str, y_title: str) -> str:
    """Draw trials as points with intervals, failed ones as crosses, and the best so far as a line.

    The axis beside reaches to the ends of intervals, but to no more than half beyond the highest
    value: those are cut.
    """
    values = [one.value for one in trials if one.value is not None]
    has_failed = len(values) < len(trials)
    names = [("dots", "trial, 95 % interval")] if values else []
    names += [("best", "best so far")] if any(one.best is not None for one in trials) else []
    names += [("dots slow", "ended early: slower")] if any(t.was_ended for t in trials) else []
    names += [("crosses", "failed, or had no time")] if has_failed else []
    legend, top = draw_legend(names)
    bottom = top + _HEIGHT
    floor = bottom - (18 if has_failed else 0)
    bests = [one.best for one in trials if one.best is not None]
    highest = max([*values, *bests], default=1.0)
    ends = [min(one.high, 1.5 * highest) for one in trials if one.high is not None]
    y_axis = value_axis([*values, *bests, *ends], top, floor, from_zero=True)
    left = left_of(y_axis)
    x_axis = Axis(
        min(one.x for one in trials) - 0.5,
        max(one.x for one in trials) + 0.5,
        left,
        WIDTH - _RIGHT,
        is_counted=True,
    )

    def clipped(value: float) -> float:
        return y_axis.at(min(max(value, y_axis.low), y_axis.high))

    spread = "".join(
        f"M{x_axis.at(t.x):.1f} {clipped(t.low):.1f}V{clipped(t.high):.1f}"
        for t in trials
        if t.low is not None and t.high is not None
    )
    parts = [
        legend,
        below(x_axis, top, bottom, x_title),
        beside(y_axis, left, x_axis.end, y_title),
        path("spread", spread),
    ]
    steps = ""
    for one in trials:
        if one.best is not None:
            x, y = x_axis.at(one.x), y_axis.at(one.best)
            steps += f"H{x:.1f}V{y:.1f}" if steps else f"M{x:.1f} {y:.1f}"
    parts.append(path("best", steps))
    for kind, was_ended in (("dots slow", True), ("dots", False)):
        dots = "".join(
            f"M{x_axis.at(t.x):.1f} {y_axis.at(t.value):.1f}h0"
            for t in trials
            if t.value is not None and t.was_ended is was_ended
        )
        parts.append(path(kind, dots))
    y = bottom - 8
    crosses = "".join(
        f"M{x_axis.at(t.x) - 3.5:.1f} {y - 3.5:.1f}l7 7m0 -7l-7 7"
        for t in trials
        if t.value is None
    )
    parts.append(path("crosses", crosses))
    return svg("".join(parts), bottom + _AXIS, title)


def style(number: int) -> str:
    """Give the classes of a curve: colours come again after six, each time with other dashes."""
    again, colour = divmod(number, _STYLES)
    return f"c{colour} d{(colour + again) % _STYLES}"


def thin(points: Points, most: int) -> Points:
    """Leave out points of a long curve: of each stretch its lowest and its highest stay."""
    if len(points) <= most:
        return points
    stretches = most // 2
    found: list[tuple[float, float | None]] = []
    numbered = [(number * stretches // len(points), point) for number, point in enumerate(points)]
    for _, group in groupby(numbered, key=lambda item: item[0]):
        inside = [point for _, point in group]
        known = [(x, y) for x, y in inside if y is not None]
        if not known:
            found.append(inside[0])
            continue
        kept = {min(known, key=lambda point: point[1]), max(known, key=lambda point: point[1])}
        found += sorted(kept)
    return found


def value_axis(values: Sequence[float], top: float, bottom: float, *, from_zero: bool) -> Axis:
    """Give the axis beside a plot that has all these values."""
    finite = [value for value in values if math.isfinite(value)]
    high, low = max(finite, default=1.0), min(finite, default=0.0)
    if from_zero and low >= 0:
        return Axis(0.0, 1.05 * high or 1.0, bottom, top)
    margin = 0.06 * (high - low) or 0.1 * abs(high) or 1.0
    return Axis(low - margin, high + margin, bottom, top)


def left_of(axis: Axis) -> float:
    """Give the room for the texts beside an axis."""
    longest = max(len(tick_text(value)) for value in axis.ticks())
    return max(_LEAST_LEFT, CHARACTER * longest + 10)


def line_through(points: Points) -> str:
    """Give a line through points, from anew after each that is missing."""
    before = [None, *(y for _, y in points)]
    return "".join(
        f"{'M' if last is None else 'L'}{x:.1f} {y:.1f}"
        for (x, y), last in zip(points, before, strict=False)
        if y is not None
    )


def _lone(points: Points) -> Points:
    """Give the points between two that are missing: no line leads to them."""
    values = [None, *(y for _, y in points), None]
    return [p for n, p in enumerate(points) if values[n] is None and values[n + 2] is None]


_SWATCHES = {
    "dots": "M{x} {y}h0",
    "dots slow": "M{x} {y}h0",
    "whisker": "M{x} {y}m0 -6v12m-3 -12h6m-6 12h6",
    "spread": "M{x} {y}m0 -6v12",
    "crosses": "M{x} {y}m-3.5 -3.5l7 7m0 -7l-7 7",
}


def draw_legend(names: Sequence[tuple[str, str]]) -> tuple[str, float]:
    """Draw names with samples of their lines; give them and where the plot begins.

    A name that is longer than the plot is wide goes on below: its end may tell it from others.
    """
    x, y = 0.0, 12.0
    parts = []
    for kind, name in names:
        room = int((WIDTH - _TEXT) / CHARACTER)
        lines = wrap(printable(name), room, max_lines=_MOST_LINES, placeholder="…") or [""]
        width = _TEXT + CHARACTER * max(map(len, lines)) + 14
        if x and x + width > WIDTH:
            x, y = 0.0, y + _LINE
        sample = _SWATCHES.get(kind)
        if sample is None:
            parts.append(path(kind, f"M{x + 2:.0f} {y - 4:.0f}h26"))
        else:
            parts.append(path(kind, sample.format(x=f"{x + 15:.0f}", y=f"{y - 4:.0f}")))
        parts += [word("small", x + _TEXT, y + 14 * n, line) for n, line in enumerate(lines)]
        x, y = x + width, y + 14 * (len(lines) - 1)
    return "".join(parts), (y + 26 if names else 22)
