"""Papers: their tables with this database's figures beside the published ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from planner.api import changes, reports
from planner.paper_tables._values import PaperSection
from planner.quantities import printable
from planner.records.event_record import EventRecord
from planner.report.papers.plots import paper_figures
from planner.service.pages.query import QueryError, find_text
from planner.service.pages.view import Context, PageRequest, View


def show(request: PageRequest, context: Context) -> View:
    """Show what is stored: all tables, or one plot; nothing is measured from here."""
    sections = _make_sections(context.db, changes.find_newest(db=context.db))
    if (key := find_text(request, "plot")) is not None:
        plots = (plot for section in sections for plot in section.plots)
        plot = next((plot for plot in plots if plot.key == key), None)
        if plot is None:
            raise QueryError(f"plot={printable(key[:60])}: /papers names those that there are")
        values = {"plot": plot, "figures": paper_figures(plot)}
        return View(template="paper_plot.html", title=plot.title, values=values)
    return View(template="papers.html", title="Tables of papers", values={"sections": sections})


@lru_cache(maxsize=1)
def _make_sections(db: str, newest: EventRecord | None) -> Sequence[PaperSection]:
    """Make the tables and plots of all papers, which reads every trial.

    They are made once for each newest change: as long as nothing is stored, they stay the same.
    """
    return reports.make(db=db, names_db=True)
