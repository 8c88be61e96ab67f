"""Files of a report: what is in each, by its name."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime

from planner.paper_tables._values import PaperSection
from planner.report.figures.picture import picture
from planner.report.papers.page import TITLE, introduction, report_page
from planner.report.papers.plots import paper_figures, paper_plot_csv
from planner.report.papers.tables import markdown_text, paper_table_csv, paper_table_markdown

FORMATS = ("md", "csv", "html")


def report_files(
    sections: Sequence[PaperSection], made_at: datetime, formats: Collection[str]
) -> Mapping[str, str]:
    """Give the text of each file of a report; Markdown brings the pictures that it shows."""
    found: dict[str, str] = {}
    if "html" in formats:
        found["report.html"] = report_page(sections, made_at)
    if "md" in formats:
        found["report.md"] = "\n".join(_lines(sections, made_at)) + "\n"
        found |= _pictures(sections)
    if "csv" in formats:
        for section in sections:
            found |= {f"table-{one.key}.csv": paper_table_csv(one) for one in section.tables}
            plots = {one.key: paper_plot_csv(one) for one in section.plots}
            found |= {f"figure-{key}.csv": text for key, text in plots.items() if text}
    return found


def possible_names(sections: Sequence[PaperSection], formats: Collection[str]) -> set[str]:
    """Give the names of all files that a report may have once everything in it is measured."""
    plots = [plot.key for section in sections for plot in section.plots]
    found = {f"report.{name}" for name in ("html", "md") if name in formats}
    if "md" in formats:
        found |= {f"figure-{key}.svg" for key in plots}
    if "csv" in formats:
        found |= {f"figure-{key}.csv" for key in plots}
        found |= {f"table-{one.key}.csv" for section in sections for one in section.tables}
    return found


def _pictures(sections: Sequence[PaperSection]) -> dict[str, str]:
    return {
        f"figure-{plot.key}.svg": picture(figures, plot.title if len(figures) > 1 else "")
        for section in sections
        for plot in section.plots
        if (figures := paper_figures(plot))
    }


def _lines(sections: Sequence[PaperSection], made_at: datetime) -> Iterator[str]:
    yield f"# {TITLE}"
    yield ""
    yield introduction(made_at)
    for section in sections:
        yield from ("", f"## {section.title}", "", f"{section.citation}.")
        for table in section.tables:
            yield from ("", f"### {table.title}", "", paper_table_markdown(table))
            yield from (f"* {markdown_text(note)}" for note in table.all_notes)
        for plot in section.plots:
            yield from ("", f"### {plot.title}", "")
            if paper_figures(plot):
                yield from (f"![{plot.title}](figure-{plot.key}.svg)", "")
            yield from (f"* {markdown_text(note)}" for note in plot.notes)
