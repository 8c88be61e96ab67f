"""Making of papers' tables from what a database holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from planner.paper_tables import load_paper, paper_names
from planner.paper_tables._base import Paper
from planner.paper_tables._collecting import collect
from planner.paper_tables._values import PaperSection
from planner.store import whole_name


class StoredReport:
    """Papers' tables and plots of what was stored at one time, read once; see `make`."""

    def __init__(
        self,
        papers: Sequence[str] | None,
        *,
        reasons: Mapping[str, str] | None,
        data: Mapping[str, Path] | None,
        db: str,
    ) -> None:
        self._papers = load_papers(papers)
        self._db = db
        self._held = collect(self._papers, db, reasons or {}, data)

    def sections(self, *, names_db: bool = False) -> list[PaperSection]:
        """Give the tables and plots of each paper."""
        held = self._held
        if names_db:
            held = replace(held, db=whole_name(self._db), names_db=True)
        return [paper.section(held) for paper in self._papers]


def make(
    papers: Sequence[str] | None = None,
    *,
    reasons: Mapping[str, str] | None = None,
    data: Mapping[str, Path] | None = None,
    db: str = "planner.db",
    names_db: bool = False,
) -> list[PaperSection]:
    """Make the papers' tables and plots from what is stored; start nothing.

    Example:
        >>> from planner.api import reports
        >>> reports.make(["lerat_2022"])[0].tables[0].title  # doctest: +SKIP
        'SimpleBig (AlexNet), one node, CPU'

    Args:
        papers: Names; all where left out.
        reasons: Why something could not be measured just now, as `measure` gives them.
        data: Folders, by use case: what was measured with them is shown before all else.
        db: Database; where there is none yet, all figures are missing.
        names_db: Whether commands for what is missing name it by its whole path, though one typed
            here would find it: they are read elsewhere.

    Raises:
        UsageError: There is no paper of a name.
        StoreError: The database cannot be used.
    """
    report = StoredReport(papers, reasons=reasons, data=data, db=db)
    return report.sections(names_db=names_db)


def load_papers(names: Sequence[str] | None) -> list[Paper]:
    """Give the papers of some names, or all, in the order of a report."""
    papers = [load_paper(name) for name in (paper_names() if names is None else names)]
    return sorted(papers, key=lambda paper: paper.order)
