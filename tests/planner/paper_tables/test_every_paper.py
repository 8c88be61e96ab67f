"""What every paper promises, asked of every file of the folder."""

from __future__ import annotations

import re
from dataclasses import replace

import paper_cases
import pytest

from planner.errors import UsageError
from planner.paper_tables import load_paper, paper_names
from planner.paper_tables._evidence import StoredEvidence

EMPTY = StoredEvidence()


@pytest.fixture(params=paper_names())
def paper(request):
    return load_paper(request.param)


@pytest.mark.parametrize("held", [EMPTY, paper_cases.EVIDENCE], ids=["nothing", "something"])
def test_every_row_has_a_figure_with_its_interval_or_says_why_not(paper, held):
    exact = {"workers", "trainings", "hosts", "batch", "loss", "target"}
    for table in paper.tables(held):
        keys = {column.key for column in table.columns}
        for row in table.rows:
            assert row.keys() <= keys
            assert any(cell.number is not None or cell.missing for cell in row.values())
            for key, cell in row.items():
                assert cell.text
                if cell.number is not None and key not in exact and "published" not in key:
                    assert cell.low <= cell.number <= cell.high


def test_published_figures_name_their_source(paper):
    for table in paper.tables(EMPTY):
        cells = [cell for row in table.rows for key, cell in row.items() if "published" in key]
        assert cells
        if any(cell.number is not None for cell in cells):
            assert re.search(r"doi 10\.|https://", table.source)


def test_what_is_missing_without_any_evidence_is_said_with_a_command(paper):
    reasons = [
        cell.missing
        for table in paper.tables(EMPTY)
        for row in table.rows
        for cell in row.values()
        if cell.missing
    ]
    assert any("ddlplan " in reason for reason in reasons)


@pytest.mark.parametrize("held", [EMPTY, paper_cases.EVIDENCE], ids=["nothing", "something"])
def test_commands_that_give_what_is_missing_name_the_database(paper, held, monkeypatch):
    """Copied from a report of another database, they measured into planner.db."""

    def reasons_of(db, *, names_db=False):
        named = replace(held, db=db, names_db=names_db)
        cells = [
            cell.missing or ""
            for table in paper.tables(named)
            for row in table.rows
            for cell in row.values()
        ]
        notes = [note for plot in paper.plots(named) for note in plot.notes if "missing: " in note]
        return "\n".join([*cells, *notes])

    monkeypatch.delenv("DDLPLAN_DB", raising=False)
    said = reasons_of("my plans.db")
    commands = re.findall("ddlplan (?:report|tune|launch|sweep|compare) --", said)
    assert len(commands) == said.count(" --db 'my plans.db'") > 0
    assert "--db" not in reasons_of("planner.db")
    monkeypatch.setenv("DDLPLAN_DB", "my plans.db")
    assert "--db" not in reasons_of("my plans.db")
    assert reasons_of("my plans.db", names_db=True) == said


def test_keys_are_names_of_files(paper):
    keys = [one.key for one in (*paper.tables(EMPTY), *paper.plots(EMPTY))]
    assert all(re.fullmatch("[a-z0-9-]+", key) for key in keys)


def test_no_two_tables_have_one_file():
    papers = [load_paper(name) for name in paper_names()]
    keys = [one.key for paper in papers for one in paper.tables(EMPTY)]
    plots = [one.key for paper in papers for one in paper.plots(EMPTY)]
    assert len(keys) == len(set(keys))
    assert len(plots) == len(set(plots))


def test_unknown_paper_is_refused_with_the_nearest_name():
    with pytest.raises(UsageError, match="did you mean lerat_2022"):
        load_paper("lerat_2020")
