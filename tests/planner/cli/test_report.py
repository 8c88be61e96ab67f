"""`ddlplan report`: papers' tables from the database, and their files."""

from __future__ import annotations

import os

import pytest


def test_without_a_database_every_figure_is_missing_and_none_is_made(ddlplan):
    ended = ddlplan.run("report")
    assert ended.code == 0, ended.err
    assert "SimpleBig (AlexNet), one node, CPU" in ended.out
    assert "not found here" in ended.out
    assert "warning: " in ended.err
    assert ddlplan.listing() == []


def test_json_holds_published_figures_with_their_source_and_reasons(ddlplan):
    papers = ddlplan.data("report", "--papers", "lerat_2022")["papers"]
    (paper,) = papers
    table = paper["tables"][0]
    processes = next(row for row in table["rows"] if row["setting"] == "several processes")
    assert processes["published"] == 15.57
    assert "10.3390/electronics11101525" in table["source"]
    assert "ddlplan report --measure" in processes["ours"]["missing"]


def test_files_are_written_and_written_again(ddlplan):
    first = ddlplan.data("report", "--out", "made/here")
    assert "made/here/report.html" in first["files"]
    assert sorted(
        file for file in ddlplan.listing() if not file.endswith("-report.json")
    ) == sorted(["made", "made/here", *first["files"]])
    only = ddlplan.data("report", "--out", "made/here", "--format", "html")
    assert only["files"] == ["made/here/report.html"]
    assert "made/here/report.md" not in ddlplan.listing()


def test_commands_in_files_name_the_database_wherever_they_are_read(ddlplan):
    """The story: typed in the folder of the report, they measured into another database."""
    shown = ddlplan.data("report", "--out", "made", "--format", "md", "--db", "lab.db")
    written = (ddlplan.folder / "made" / "report.md").read_text().replace("\\", "")
    assert f"ddlplan report --measure --db {ddlplan.folder / 'lab.db'}" in written
    assert "--db lab.db" not in written
    assert "ddlplan report --measure --db lab.db" in str(shown["papers"])


def test_a_file_of_the_user_stays_and_nothing_is_measured(ddlplan):
    (ddlplan.folder / "report.md").write_text("mine")
    refused = ddlplan.run("report", "--out", ".", "--measure", "--allow-run-as-root")
    assert "report.md is there" in refused.refusal()
    assert ddlplan.listing() == ["report.md"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is refused")
def test_root_that_may_not_start_mpirun_is_refused_before_a_folder_is_made(ddlplan, monkeypatch):
    monkeypatch.delenv("OMPI_ALLOW_RUN_AS_ROOT", raising=False)
    refused = ddlplan.run("report", "--measure", "--out", "made")
    assert "--allow-run-as-root" in refused.refusal(7)
    assert ddlplan.listing() == []


def test_plots_that_text_does_not_show_are_named(ddlplan):
    ended = ddlplan.run("report", "--papers", "mnist_batches")
    assert "mnist_cnn over batches: missing: no sweep stored: ddlplan sweep" in ended.out
