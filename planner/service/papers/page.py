"""Papers: their tables with this database's figures beside the published ones."""

from __future__ import annotations

from collections.abc import Mapping

from planner.api import reports, trainings
from planner.paper_tables._values import EMPTY, Cell, PaperPlot, PaperSection, PaperTable
from planner.quantities import printable
from planner.report.papers.plots import paper_figures
from planner.service.pages.query import QueryError, find_text
from planner.service.pages.view import Context, PageRequest, View


def show(request: PageRequest, context: Context) -> View:
    """Show what is stored: all tables, or one plot; nothing is measured from here."""
    trainings.find(most=1, db=context.db)  # or there is no database yet
    if (key := find_text(request, "plot")) is not None:
        plot = reports.make_plot(key, db=context.db)
        if plot is None:
            raise QueryError(f"plot={printable(key[:60])}: /papers names those that there are")
        return View(template="paper_plot.html", title=plot.title, values={"plot": _plot(plot)})
    sections = reports.make(db=context.db)
    return View(
        template="papers.html",
        title="Tables of papers",
        values={"sections": [_section(one) for one in sections]},
    )


def _section(section: PaperSection) -> Mapping[str, object]:
    return {
        "key": f"paper-{section.name.replace('_', '-')}",
        "title": section.title,
        "citation": section.citation,
        "tables": [_table(one) for one in section.tables],
        "plots": section.plots,
    }


def _table(table: PaperTable) -> Mapping[str, object]:
    used = [c for c in table.columns if any(row.get(c.key, EMPTY).text for row in table.rows)]
    return {
        "key": table.key,
        "title": table.title,
        "columns": used,
        "rows": [
            [(c, row.get(c.key, EMPTY), _kind(row.get(c.key, EMPTY))) for c in used]
            for row in table.rows
        ],
        "notes": [*([f"Published: {table.source}."] if table.source else []), *table.notes],
    }


def _kind(cell: Cell) -> str:
    return "missing" if cell.missing else "number" if cell.number is not None else "text"


def _plot(plot: PaperPlot) -> Mapping[str, object]:
    return {
        "key": plot.key,
        "title": plot.title,
        "figures": paper_figures(plot),
        "notes": plot.notes,
    }
