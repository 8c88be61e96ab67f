"""Document of a page: its head, its style, and what many pages have."""

from __future__ import annotations

from collections.abc import Iterable

from planner.report.figures.figure import escaped, style_sheet

_STYLE = """
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
  margin: 2rem auto; max-width: 52rem; padding: 0 1rem; }
h1 { font-size: 1.35rem; margin-bottom: 0; } h2 { font-size: 1.05rem; margin: 2.2rem 0 .3rem; }
p { margin: .3rem 0; } .soft { color: var(--soft); }
figure { margin-top: 2rem; } .facts td { padding: .1rem 1.2rem .1rem 0; border: 0;
  vertical-align: top; } .facts td:first-child { color: var(--soft); white-space: nowrap; }
.facts td + td { overflow-wrap: anywhere; }
h1, h2, h3, p, li, figcaption, summary { overflow-wrap: anywhere; }
/* On a phone rows are blocks, each cell after the name of its column. */
@media (max-width: 40rem) {
  .list, .list tbody { display: block; } .list thead { display: none; }
  .list tbody tr { display: block; border-bottom: 1px solid var(--line); padding: .5rem 0; }
  .list tbody th, .list tbody td { display: flex; justify-content: space-between; gap: 1rem;
    border: 0; padding: .1rem 0; min-width: 0; white-space: normal; overflow-wrap: anywhere; }
  .list tbody td:empty { display: none; }
  .list td[data-label]::before { content: attr(data-label); color: var(--soft); flex: none; }
}
"""


def page_document(title: str, body: str, *, style: str = "") -> str:
    """Give a whole HTML document, without scripts and without links to elsewhere.

    Its title is a text, its body markup; a style has rules that this page alone has.
    """
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escaped(title)}</title><style>{style_sheet()}{_STYLE}{style}</style></head><body>"
        f"{body}</body></html>\n"
    )


def facts_html(facts: Iterable[tuple[str, str]]) -> str:
    """Give facts as a table, a line each."""
    rows = (f"<tr><td>{escaped(name)}</td><td>{escaped(value)}</td></tr>" for name, value in facts)
    return f'<table class="facts">{"".join(rows)}</table>'


def list_table(label: str, head: str, rows: str) -> str:
    """Give a table whose rows are blocks on a phone: its label is a text, its head cells markup."""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escaped(label)}">'
        f'<table class="list"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def row_head(name: str) -> str:
    """Give the first cell of a row of such a table."""
    return f'<th scope="row">{escaped(name)}</th>'


def list_cell(title: str, text: str, *, columns: int = 1, kind: str = "") -> str:
    """Give another cell, which a phone shows after the title of its column unless it is empty."""
    span = f' colspan="{columns}"' if columns > 1 else ""
    style = f' class="{kind}"' if kind else ""
    label = f' data-label="{escaped(title)}"' if text else ""
    return f"<td{span}{style}{label}>{escaped(text)}</td>"
