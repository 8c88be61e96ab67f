"""Figure: a plot with its title, a remark, and the table of what it shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files

from planner.quantities import printable

_LONGEST = 200
"""Characters of a text in a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A plot and what it shows."""

    title: str

    svg: str
    """Markup; texts in it are escaped."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    """Of the table, for those who do not see the plot."""

    note: str = ""


def escaped(text: str) -> str:
    """Escape a text for HTML, and its control characters."""
    return escape(printable(text))


def drawn_figures(*figures: Figure | None) -> list[Figure]:
    """Leave out those that could not be drawn."""
    return [figure for figure in figures if figure is not None]


@cache
def style_sheet() -> str:
    """Give the style of plots and their tables, with the colours of light and dark pages."""
    return files("planner.report").joinpath("figures/figures.css").read_text(encoding="utf-8")


def figures_html(figures: Iterable[Figure], key: str) -> str:
    """Give figures as HTML, one after the other; the key of each is that key and its number."""
    return "".join(figure_html(one, f"{key}-{number}") for number, one in enumerate(figures, 1))


def figure_html(figure: Figure, key: str) -> str:
    """Give a figure as HTML; ``key`` names it in its page, by letters and hyphens."""
    title = _text(figure.title)
    note = f'<p class="note">{escaped(figure.note)}</p>' if figure.note else ""
    head = "".join(f'<th scope="col">{_text(text)}</th>' for text in figure.columns)
    rows = "".join(
        f"<tr>{''.join(f'<td>{_text(text)}</td>' for text in row)}</tr>" for row in figure.rows
    )
    return (
        f'<figure id="{key}"><figcaption>{title}</figcaption>{figure.svg}{note}'
        f'<details id="{key}-table"><summary>Table<span class="visually-hidden"> of: {title}</span>'
        f'</summary><div class="scroll" tabindex="0" role="region" aria-label="{title}: table">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div></details>"
        "</figure>"
    )


def _text(text: str) -> str:
    short = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return escaped(short)
