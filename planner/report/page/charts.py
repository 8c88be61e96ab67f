"""Charts as SVG: bars from zero, points around a line, and lines over a common axis.

Each has an axis with its unit and takes its colours from the variables of the page it is in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

_WIDTH = 760
_LABELS = 210
_TEXTS = 170
_ROW = 26
_BAR = 14
_TOP = 8
_AXIS = 40
_CHARACTER = 6.6
"""Width of a character of a label, about."""

_TICKS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One row of a chart."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None

    text: str
    """The value in words, to the right of it."""

    is_main: bool = False
    """Whether it stands out."""

    is_model: bool = False
    """Whether it is not measured: drawn hollow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line of a chart, through points of x and y."""

    label: str
    points: Sequence[tuple[float, float]]
    is_main: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """Positions of values between two ends."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Give the place of a value."""
        part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Give round values between the ends, a few."""
        rough = (self.high - self.low) / _TICKS
        size = 10.0 ** math.floor(math.log10(rough))
        step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def bar_chart(marks: Sequence[Mark], *, title: str, unit: str) -> str:
    """Draw a bar for each mark, from zero, with whiskers where it has an interval."""
    highest = max(mark.value if mark.high is None else mark.high for mark in marks)
    axis = Axis(0.0, 1.05 * highest or 1.0, _LABELS, _WIDTH - _TEXTS)

    def draw(mark: Mark, y: float) -> str:
        width = max(1.0, axis.at(mark.value) - axis.start)
        kind = "model" if mark.is_model else "main" if mark.is_main else "other"
        return (
            f'<rect class="bar {kind}" x="{axis.start:.1f}" y="{y - _BAR / 2:.1f}" '
            f'width="{width:.1f}" height="{_BAR}" rx="2"/>' + _whisker(mark, y, axis)
        )

    return _rows(marks, axis, draw, title=title, unit=unit)


def point_chart(marks: Sequence[Mark], *, title: str, unit: str, origin: float = 0.0) -> str:
    """Draw a point for each mark with its interval, and a line where nothing changes."""
    ends = [end for m in marks for end in (m.low, m.value, m.high) if end is not None] + [origin]
    margin = 0.06 * (max(ends) - min(ends)) or 1.0
    axis = Axis(min(ends) - margin, max(ends) + margin, _LABELS, _WIDTH - _TEXTS)

    def draw(mark: Mark, y: float) -> str:
        kind = "model" if mark.is_model else "main"
        point = (
            f'<circle class="point {kind}" cx="{axis.at(mark.value):.1f}" cy="{y:.1f}" r="4.5"/>'
        )
        return _whisker(mark, y, axis) + point

    zero = _vertical("zero", axis.at(origin), len(marks))
    return _rows(marks, axis, draw, title=title, unit=unit, extra=zero)


def line_chart(curves: Sequence[Curve], *, title: str, x_title: str, y_title: str) -> str:
    """Draw lines that begin at zero of both axes' units, each named at its end."""
    height = 260
    points = [point for curve in curves for point in curve.points]
    x_axis = Axis(0.0, max(x for x, _ in points) or 1.0, 60, _WIDTH - _TEXTS)
    y_axis = Axis(0.0, 1.05 * max(y for _, y in points) or 1.0, height - _AXIS, _TOP + 12)
    parts = [
        _word("unit", 60, _TOP + 2, y_title),
        _axis(x_axis, height - _AXIS, _TOP + 12, x_title),
    ]
    for value in y_axis.ticks():
        y = y_axis.at(value)
        parts.append(f'<line class="grid" x1="60" x2="{x_axis.end}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_word("tick end", 54, y + 4, _number(value)))
    ends = _apart([y_axis.at(curve.points[-1][1]) for curve in curves])
    for curve, end in zip(curves, ends, strict=True):
        kind = "main" if curve.is_main else "other"
        path = " ".join(f"{x_axis.at(x):.1f},{y_axis.at(y):.1f}" for x, y in curve.points)
        parts.append(f'<polyline class="curve {kind}" points="{path}"/>')
        parts.append(_word("value", x_axis.end + 8, end + 4, curve.label))
    return _svg("".join(parts), height, title)


def _rows(
    marks: Sequence[Mark],
    axis: Axis,
    draw: Callable[[Mark, float], str],
    *,
    title: str,
    unit: str,
    extra: str = "",
) -> str:
    bottom = _TOP + _ROW * len(marks)
    parts = [_axis(axis, bottom, _TOP, unit), extra]
    for number, mark in enumerate(marks):
        y = _TOP + _ROW * (number + 0.5)
        label = "label main" if mark.is_main else "label"
        side = (
            f", {_number(mark.low)} to {_number(mark.high)}"
            if mark.low is not None and mark.high is not None
            else ""
        )
        said = escape(f"{mark.label}: {_number(mark.value)} {unit}{side}")
        parts.append(
            f"<g><title>{said}</title>"
            + _word(label, _LABELS - 10, y + 4, _cut(mark.label))
            + draw(mark, y)
            + _word("value", axis.end + 10, y + 4, mark.text)
            + "</g>"
        )
    return _svg("".join(parts), bottom + _AXIS, title)


def _axis(axis: Axis, bottom: float, top: float, unit: str) -> str:
    parts = []
    for value in axis.ticks():
        x = axis.at(value)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>')
        parts.append(_word("tick", x, bottom + 15, _number(value)))
    middle = (axis.start + axis.end) / 2
    parts.append(
        f'<line class="axis" x1="{axis.start}" x2="{axis.end}" y1="{bottom}" y2="{bottom}"/>'
    )
    parts.append(_word("tick unit", middle, bottom + 32, unit))
    return "".join(parts)


def _word(kind: str, x: float, y: float, text: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _whisker(mark: Mark, y: float, axis: Axis) -> str:
    if mark.low is None or mark.high is None or mark.low == mark.high:
        return ""
    low, high = axis.at(mark.low), axis.at(mark.high)
    ends = "".join(
        f'<line class="whisker" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 4:.1f}" y2="{y + 4:.1f}"/>'
        for x in (low, high)
    )
    return f'<line class="whisker" x1="{low:.1f}" x2="{high:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>{ends}'


def _vertical(kind: str, x: float, rows: int) -> str:
    bottom = _TOP + _ROW * rows
    return f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom}"/>'


def _apart(places: Sequence[float], gap: float = 15.0) -> list[float]:
    """Move texts down until none lies on another."""
    moved = list(places)
    order = sorted(range(len(moved)), key=lambda number: moved[number])
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + gap)
    return moved


def _cut(text: str) -> str:
    most = int((_LABELS - 14) / _CHARACTER)
    return text if len(text) <= most else text[: most - 1] + "…"


def _number(value: float) -> str:
    return f"{value:.4g}".replace("-0", "0") if value == 0 else f"{value:.4g}"


def _svg(content: str, height: float, title: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">'
        f"{content}</svg>"
    )
