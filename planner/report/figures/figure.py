"""Figure: a plot with its title, a remark, and the table of what it shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

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


def figure_html(figure: Figure, key: str) -> str:
    """Give a figure as HTML.

    Args:
        figure: What to show.
        key: The figure's name in its page, of letters and hyphens.
    """
    title = _text(figure.title)
    note = f'<p class="note">{escape(printable(figure.note))}</p>' if figure.note else ""
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
    return escape(printable(short))
