"""Rows: bars from zero, and points around a line, each below its label and its value in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.quantities import format_interval
from planner.report.figures.axes import (
    CHARACTER,
    WIDTH,
    Axis,
    below,
    path,
    shorten,
    svg,
    tick_text,
    word,
)
from planner.report.figures.figure import escaped
from probes.timing import Interval

_ROW = 38.0
_BAR = 12.0
_AXIS = 40.0
_EDGE, _RIGHT = 6.0, 16.0
_BOLD = 1.12
"""Width of a bold text / of another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One row of a plot."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None

    text: str
    """The value in words."""

    is_main: bool = False
    """Whether it stands out."""

    is_model: bool = False
    """Whether it is not measured: drawn hollow."""


def rate_mark(label: str, rate: Interval, text: str = "", *, is_main: bool = False) -> Mark:
    """Give the row of a rate; its interval is written where no other text is given."""
    return Mark(
        label=label,
        value=rate.median,
        low=rate.low,
        high=rate.high,
        text=text or format_interval(rate),
        is_main=is_main,
    )


def change_mark(label: str, ratio: Interval, more: str = "", *, is_model: bool = False) -> Mark:
    """Give the row of a ratio as a change in percent; ``more`` is what else is written of it."""
    change, low, high = (100 * (part - 1) for part in (ratio.median, ratio.low, ratio.high))
    return Mark(
        label=label,
        value=change,
        low=low,
        high=high,
        text=f"{change:+.1f} %{more}",
        is_model=is_model,
    )


def bar_plot(marks: Sequence[Mark], *, title: str, unit: str, is_counted: bool = False) -> str:
    """Draw a bar for each mark, from zero, with whiskers where it has an interval.

    ``is_counted`` says that values are whole numbers.
    """
    ends = [mark.value if mark.high is None else mark.high for mark in marks]
    axis = Axis(0.0, 1.02 * max(ends) or 1.0, _EDGE, WIDTH - _RIGHT, is_counted)

    def draw(mark: Mark, y: float) -> str:
        width = max(1.0, axis.at(mark.value) - axis.start)
        kind = "model" if mark.is_model else "main" if mark.is_main else "other"
        return (
            f'<rect class="bar {kind}" x="{axis.start:.1f}" y="{y - _BAR / 2:.1f}" '
            f'width="{width:.1f}" height="{_BAR:.0f}" rx="1.5"/>' + _whisker(mark, y, axis)
        )

    return _rows(marks, axis, draw, title=title, unit=unit)


def point_plot(marks: Sequence[Mark], *, title: str, unit: str, origin: float = 0.0) -> str:
    """Draw a point for each mark with its interval, and a line where nothing changes."""
    ends = [end for m in marks for end in (m.low, m.value, m.high) if end is not None] + [origin]
    margin = 0.06 * (max(ends) - min(ends)) or 1.0
    axis = Axis(min(ends) - margin, max(ends) + margin, _EDGE, WIDTH - _RIGHT)

    def draw(mark: Mark, y: float) -> str:
        kind = "model" if mark.is_model else "main"
        point = (
            f'<circle class="point {kind}" cx="{axis.at(mark.value):.1f}" cy="{y:.1f}" r="4.5"/>'
        )
        return _whisker(mark, y, axis) + point

    x = axis.at(origin)  # beside the points alone: a line through the labels strikes them out
    line = path("axis", "".join(f"M{x:.1f} {_ROW * n + 19:.1f}v16" for n in range(len(marks))))
    return _rows(marks, axis, draw, title=title, unit=unit, extra=line)


def _rows(
    marks: Sequence[Mark],
    axis: Axis,
    draw: Callable[[Mark, float], str],
    *,
    title: str,
    unit: str,
    extra: str = "",
) -> str:
    bottom = _ROW * len(marks)
    parts = [below(axis, 0, bottom, unit), extra]
    for number, mark in enumerate(marks):
        top = _ROW * number
        side = (
            f", {tick_text(mark.low)} to {tick_text(mark.high)}"
            if mark.low is not None and mark.high is not None
            else ""
        )
        said = escaped(f"{mark.label}: {tick_text(mark.value)} {unit}{side}")
        left = WIDTH - 2 * _EDGE - CHARACTER * len(mark.text) - 16
        label = "halo strong" if mark.is_main else "halo"
        parts.append(
            f"<g><title>{said}</title>"
            + draw(mark, top + 27)
            + word(
                label, _EDGE, top + 14, shorten(mark.label, left / _BOLD if mark.is_main else left)
            )
            + word("halo soft end", WIDTH - _EDGE, top + 14, mark.text)
            + "</g>"
        )
    return svg("".join(parts), bottom + _AXIS, title)


def _whisker(mark: Mark, y: float, axis: Axis) -> str:
    if mark.low is None or mark.high is None or math.isclose(mark.low, mark.high):
        return ""
    low, high = axis.at(mark.low), axis.at(mark.high)
    return path(
        "whisker",
        f"M{low:.1f} {y - 4:.1f}v8M{low:.1f} {y:.1f}H{high:.1f}M{high:.1f} {y - 4:.1f}v8",
    )
