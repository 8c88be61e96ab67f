"""The command ``ddlplan report``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from planner.api import reports, trainings
from planner.commands.signals import cancel_on_signals
from planner.paper_tables._values import PaperPlot, PaperSection
from planner.plans.stored_plan import utc_now
from planner.report.live import LiveDisplay
from planner.report.output import Output
from planner.report.papers.files import possible_names, report_files
from planner.report.papers.folder import ReportFolder
from planner.report.papers.plots import paper_plot_csv
from planner.report.papers.tables import paper_table_json, paper_table_text


def make_report(
    request: reports.MeasureRequest,
    db: str,
    out: Output,
    *,
    measures: bool,
    place: Path | None,
    formats: Sequence[str],
) -> None:
    """Show the papers' tables, and write their files where a folder is named as their place."""
    folder = None if place is None else ReportFolder(place)
    if folder is not None and measures:  # at once: measuring takes long
        folder.check(possible_names(reports.make(request.papers, db=db), formats))
    measured = _measure(request, db, out) if measures else reports.Measured()
    with out.missing_as_empty():
        trainings.find(most=1, db=db)
    report = reports.StoredReport(
        request.papers, reasons=measured.reasons, data=request.data, db=db
    )
    sections = report.sections()
    files: list[Path] = []
    if folder is not None:
        folder.check(possible_names(sections, formats))
        files = folder.write(report_files(report.sections(names_db=True), utc_now(), formats))
    _show(sections, out)
    for file in files:
        out.note(f"wrote {file}")
    out.finish(
        {
            "papers": [_section_json(section) for section in sections],
            "measured": list(measured.done),
            "files": [str(file) for file in files],
        }
    )


def _measure(request: reports.MeasureRequest, db: str, out: Output) -> reports.Measured:
    with LiveDisplay(out) as display:
        return reports.measure(
            request,
            db=db,
            listener=display,
            make_cancellation=partial(cancel_on_signals, out.warn),
        )


def _show(sections: Sequence[PaperSection], out: Output) -> None:
    for section in sections:
        for table in section.tables:
            out.write_line(table.title)
            out.write_text(partial(paper_table_text, table))
            for note in table.all_notes:
                out.write_line(f"  {note}")
            out.write_line("")
        for plot in section.plots:
            out.write_line(f"{plot.title}: {_where(plot)}")
        out.write_line("")


def _where(plot: PaperPlot) -> str:
    """Say where a plot is to be seen, or why there is none."""
    if not paper_plot_csv(plot):
        return " ".join(plot.notes)
    lacking = sum("missing: " in note for note in plot.notes)
    partly = f", which says why {lacking} of its curves are missing" if lacking else ""
    return f"figure-{plot.key} of ddlplan report --out DIR{partly}"


def _section_json(section: PaperSection) -> dict[str, object]:
    return {
        "name": section.name,
        "title": section.title,
        "citation": section.citation,
        "tables": [paper_table_json(table) for table in section.tables],
        "figures": [
            {"key": plot.key, "title": plot.title, "notes": list(plot.notes)}
            for plot in section.plots
        ],
    }
