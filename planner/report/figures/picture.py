"""Picture: figures in one SVG file, which any program shows without a style sheet of ours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from html import escape

from planner.report.figures.axes import WIDTH, shorten
from planner.report.figures.figure import Figure, escaped, style_sheet

_EDGE, _GAP, _HEAD, _TITLE = 24.0, 36.0, 44.0, 28.0
_PLOT = re.compile(r'<svg[^>]* viewBox="0 0 [0-9.]+ (?P<height>[0-9.]+)"[^>]*>(?P<inside>.*)</svg>')
_VARIABLE = re.compile(r"(--[a-z0-9-]+): (#[0-9a-f]{6});")


def picture(figures: Sequence[Figure], title: str) -> str:
    """Draw figures below one another, in two columns where there are several, on white.

    Those without a plot are left out. One figure alone needs no title of the whole.
    """
    plots = [(figure, found) for figure in figures if (found := _PLOT.fullmatch(figure.svg))]
    columns = 2 if len(plots) > 1 else 1
    bottoms = [_EDGE + (_HEAD if title else 0.0)] * columns
    parts = []
    for figure, found in plots:
        column = min(range(columns), key=lambda number: bottoms[number])
        x, y = _EDGE + column * (WIDTH + _GAP), bottoms[column]
        name = escape(shorten(figure.title, 1.1 * WIDTH))
        parts.append(
            f'<text class="strong" x="{x:.0f}" y="{y + 12:.0f}">{name}</text>'
            f'<g transform="translate({x:.0f} {y + _TITLE:.0f})">{found["inside"]}</g>'
        )
        bottoms[column] = y + _TITLE + float(found["height"]) + _GAP
    width = 2 * _EDGE + columns * WIDTH + (columns - 1) * _GAP
    height = max(bottoms)
    text = escaped(title or (plots[0][0].title if plots else ""))
    head = f'<text class="head" x="{_EDGE:.0f}" y="{_EDGE + 14:.0f}">{text}</text>' if title else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" width="{width:.0f}" '
        f'height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="{text}"><title>{text}</title><style>{_style()}</style>'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{head}{"".join(parts)}</svg>\n'
    )


@cache
def _style() -> str:
    """Give the rules of what is inside a plot, with the colours of the light pages written out."""
    sheet = style_sheet()
    colours = dict(reversed(_VARIABLE.findall(sheet)))  # the first of a name is the light one
    rules = " ".join(re.findall(r"^svg\.plot \.?[^{]*\{[^}]*\}", sheet, re.MULTILINE))
    plain = re.sub(r"var\((--[a-z0-9-]+)\)", lambda name: colours[name[1]], rules)
    return f"{plain} svg.plot .head {{ font: 600 17px system-ui, sans-serif; }}"
