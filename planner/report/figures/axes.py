"""Axes: places of values, round ticks, and the SVG that all plots have in common.

Plots are 480 units wide, so that their texts can be read on a phone, where they are shown at three
quarters of that. Colours and sizes are those of ``figures.css``, by classes: pages of the service
allow no style of an element's own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from planner.quantities import printable
from planner.report.figures.figure import escaped

WIDTH = 480.0
CHARACTER = 7.2
"""Width of a character, about."""

_TICKS = 5
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, slots=True)
class Axis:
    """Positions of values between two ends."""

    low: float
    high: float
    start: float
    end: float

    is_counted: bool = False
    """Whether only whole numbers mean something, of workers say."""

    def at(self, value: float) -> float:
        """Give the place of a value."""
        part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Give round values between the ends, a few."""
        rough = max((self.high - self.low) / _TICKS, 1.0 if self.is_counted else 0.0)
        size = 10.0 ** math.floor(math.log10(rough))
        step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def tick_text(value: float) -> str:
    """Write a round value: ``0``, ``0.25``, ``1500``, ``20k``."""
    if value == 0:
        return "0"
    for size, prefix in _PREFIXES if abs(value) >= 1e4 else ():
        if abs(value) >= size:
            return f"{value / size:.4g}{prefix}"
    return f"{value:.4g}"


def word(kind: str, x: float, y: float, text: str) -> str:
    """Write a text at a place."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escaped(text)}</text>'


def path(kind: str, data: str) -> str:
    """Draw a path; nothing where it has no points."""
    return f'<path class="{kind}" d="{data}"/>' if data else ""


def below(axis: Axis, top: float, bottom: float, title: str) -> str:
    """Draw an axis below a plot, with a grid through it and its unit."""
    ticks = [(axis.at(value), tick_text(value)) for value in axis.ticks()]
    return draw_below(axis, ticks, top, bottom, title)


def draw_below(
    axis: Axis, ticks: Sequence[tuple[float, str]], top: float, bottom: float, title: str
) -> str:
    """Draw the same with ticks at given places; the texts of some may be empty."""
    grid = "".join(f"M{x:.1f} {top:.1f}V{bottom:.1f}" for x, _ in ticks)
    texts = "".join(word("small soft mid", x, bottom + 16, text) for x, text in ticks if text)
    line = path("axis", f"M{axis.start:.1f} {bottom:.1f}H{axis.end:.1f}")
    middle = (axis.start + axis.end) / 2
    return path("grid", grid) + line + texts + word("small soft mid", middle, bottom + 33, title)


def beside(axis: Axis, left: float, right: float, title: str) -> str:
    """Draw an axis left of a plot, with a grid through it and its unit above it."""
    ticks = axis.ticks()
    grid = "".join(f"M{left:.1f} {axis.at(value):.1f}H{right:.1f}" for value in ticks)
    texts = "".join(
        word("small soft end", left - 6, axis.at(value) + 4, tick_text(value)) for value in ticks
    )
    return path("grid", grid) + texts + word("small soft", 0, axis.end - 10, title)


def shorten(text: str, width: float) -> str:
    """Cut a text to a width, about."""
    shown = printable(text)
    most = max(4, int(width / CHARACTER))
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def svg(content: str, height: float, title: str) -> str:
    """Wrap a plot."""
    label = escaped(title)
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" '
        f'aria-label="{label}">{content}</svg>'
    )
