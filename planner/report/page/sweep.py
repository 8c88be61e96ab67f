"""Page of a sweep: its findings, its plots, its points."""

from __future__ import annotations

from planner.report.figures.figure import escaped, figures_html
from planner.report.figures.sweep_figures import sweep_figures
from planner.report.page.document import facts_html, page_document
from planner.report.sweeps.tables import interval_note, sweep_facts
from planner.sweeps.findings import find_sentences
from planner.sweeps.sweep_record import StoredSweep


def sweep_page(sweep: StoredSweep) -> str:
    """Give a sweep with its plots as one HTML document."""
    record = sweep.record
    title = f"Sweep {record.id}: {record.use_case} on {record.node}"
    said = "".join(f"<p>{escaped(sentence)}</p>" for sentence in find_sentences(sweep))
    figures = figures_html(sweep_figures(sweep), "figure")
    return page_document(
        title,
        f"<h1>{escaped(title)}</h1>{said}"
        f'<p class="soft">{escaped(interval_note(sweep))}</p>{figures}'
        f"<h2>Settings</h2>{facts_html(sweep_facts(sweep))}",
    )
