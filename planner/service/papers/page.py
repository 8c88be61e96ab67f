"""Papers: their tables with this database's figures beside the published ones."""

from __future__ import annotations

from planner.api import reports, trainings
from planner.paper_tables._values import EMPTY
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
        values = {"plot": plot, "figures": paper_figures(plot)}
        return View(template="paper_plot.html", title=plot.title, values=values)
    return View(
        template="papers.html",
        title="Tables of papers",
        values={"sections": reports.make(db=context.db), "empty": EMPTY},
    )
