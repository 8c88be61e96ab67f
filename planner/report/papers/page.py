"""Page of a report: every table and plot in one HTML file, without links to elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from planner.paper_tables._values import Cell, PaperPlot, PaperSection, PaperTable, TableColumn
from planner.report.figures.figure import escaped, figures_html
from planner.report.page.document import list_cell, list_table, page_document, row_head
from planner.report.papers.plots import paper_figures

TITLE = "Papers' tables, and this database's figures beside them"
"""Of a report, in each of its formats."""

_STYLE = """
body { max-width: 74rem; } h2 { font-size: 1.15rem; margin: 2.6rem 0 .2rem; }
h3 { font-size: 1rem; margin: 1.8rem 0 .4rem; } figure { margin-top: 0; }
.notes { color: var(--soft); font-size: .8125rem; margin: .5rem 0 0; padding-left: 1.1rem;
  overflow-wrap: anywhere; }
nav ul { list-style: none; padding: 0; margin: .6rem 0; }
nav a { color: var(--accent); display: inline-block; padding: .3rem 0; }
th[scope=row] { min-width: 8.5rem; }
td.num, th.num { text-align: right; } td.num { white-space: nowrap; }
td.missing { color: var(--warn); min-width: 15rem; white-space: normal; text-align: left; }
td.unknown { color: var(--soft); }
td.plan { min-width: 12rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 22rem), 1fr));
  gap: 1.6rem 2rem; margin-top: 1.4rem; }
"""


def report_page(sections: Sequence[PaperSection], made_at: datetime) -> str:
    """Give a report as one HTML document."""
    contents = "".join(
        f'<li><a href="#{one.key}">{escaped(one.title)}</a></li>' for one in sections
    )
    return page_document(
        TITLE,
        f"<h1>{escaped(TITLE)}</h1>"
        f'<p class="soft">{escaped(introduction(made_at))}</p>'
        f'<nav aria-label="Papers"><ul>{contents}</ul></nav>'
        f"{''.join(_section_html(one) for one in sections)}",
        style=_STYLE,
    )


def introduction(made_at: datetime) -> str:
    """Say when a report was made, and how its figures are to be read."""
    return (
        f"ddlplan report, {made_at:%Y-%m-%d %H:%M} UTC. ± and ranges in brackets are 95 % "
        "intervals; what could not be measured says why."
    )


def _section_html(section: PaperSection) -> str:
    """Give what a report says of one paper, as a part of a page."""
    tables = "".join(_table(table) for table in section.tables)
    plots = "".join(_plots(plot) for plot in section.plots)
    return (
        f'<section id="{section.key}"><h2>{escaped(section.title)}</h2>'
        f'<p class="soft">{escaped(section.citation)}</p>{tables}{plots}</section>'
    )


def _table(table: PaperTable) -> str:
    columns = table.used_columns
    head = "".join(
        f'<th scope="col"{" class=num" if c.is_number else ""}>{escaped(c.title)}</th>'
        for c in columns
    )
    rows = [f"<tr>{''.join(_cells(row, columns))}</tr>" for row in table.rows]
    return (
        f'<h3 id="{table.key}">{escaped(table.title)}</h3>'
        f"{list_table(table.title, head, ''.join(rows))}{_notes(table.all_notes)}"
    )


def _cells(row: Mapping[str, Cell], columns: Sequence[TableColumn]) -> Iterator[str]:
    """Give the cells of a row; why something is missing takes the place of empty ones after it."""
    first, *others = columns
    yield row_head(first.cell_of(row).text)
    while others:
        column, *others = others
        cell = column.cell_of(row)
        width = 1
        while cell.missing is not None and others and not others[0].cell_of(row).text:
            others, width = others[1:], width + 1
        yield list_cell(column.title, cell.text, columns=width, kind=_kind(cell, column))


def _kind(cell: Cell, column: TableColumn) -> str:
    if cell.missing is not None:
        return "missing"
    if column.is_number:
        return "num" if cell.number is not None else "num unknown"
    return "plan" if column.key == "plan" else ""


def _plots(plot: PaperPlot) -> str:
    found = paper_figures(plot)
    figures = figures_html(found, plot.key)
    shown = f'<div class="plots">{figures}</div>' if figures else ""
    # A figure alone has the title of the plot.
    title = "" if [one.title for one in found] == [plot.title] else escaped(plot.title)
    return f"{f'<h3>{title}</h3>' if title else ''}{shown}{_notes(plot.notes)}"


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    return f'<ul class="notes">{"".join(f"<li>{escaped(note)}</li>" for note in notes)}</ul>'
