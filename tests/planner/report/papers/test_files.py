"""Files of a report: each table and plot, complete by itself, with what is missing in words."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from xml.etree import ElementTree

import paper_cases
import pytest
import worth_cases
from rich.text import Text
from sample_plan import NOON
from sweep_samples import sample_sweep

from planner.paper_tables import load_paper, paper_names
from planner.paper_tables._evidence import StoredEvidence
from planner.report.papers.files import FORMATS, possible_names, report_files
from planner.report.papers.plots import paper_plot_csv
from planner.report.papers.tables import paper_table_text
from planner.report.table import Terminal

HOSTILE = "<script>alert(1)</script>\x1b[31m|*"


def sections(held=paper_cases.EVIDENCE):
    return [load_paper(name).section(held) for name in paper_names()]


@pytest.fixture(scope="module")
def files():
    return report_files(sections(), NOON, FORMATS)


def test_every_table_and_every_plot_has_a_file_and_markdown_shows_the_pictures(files):
    made = sections()
    assert {f"table-{t.key}.csv" for s in made for t in s.tables} <= files.keys()
    plots = [p for s in made for p in s.plots if paper_plot_csv(p)]
    assert plots
    assert {f"figure-{p.key}.csv" for p in plots} <= files.keys()
    assert "figure-lerat-simplebig-use.svg" in files
    assert "report.html" in files
    for name, text in files.items():
        if name.endswith(".svg"):
            ElementTree.fromstring(text)
            assert f"]({name})" in files["report.md"]


def test_page_is_self_contained(files):
    page = files["report.html"]
    assert not re.search(r"<(script|link|img|iframe)|src=|url\(|@import", page)
    assert not [link for link in re.findall(r'href="([^"]*)"', page) if not link.startswith("#")]
    assert 'aria-label="Cores in use"' in page
    ids = re.findall(r' id="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in re.findall(r'href="([^"]*)"', page)} <= set(ids)
    assert "missing: no GPU on vm: no NVIDIA driver" in page


def test_csv_has_numbers_with_the_ends_of_their_intervals_and_the_source(files):
    table = csv.DictReader(files["table-lerat-simplebig-cpu.csv"].splitlines())
    rows = {row["setting"]: row for row in table}
    processes = rows["several processes"]
    assert float(processes["ours_ci_low"]) <= float(processes["ours"])
    assert float(processes["ours"]) <= float(processes["ours_ci_high"])
    assert processes["published"] == "15.57"
    assert "10.3390/electronics11101525" in processes["source"]
    threads = rows["one process, threads"]
    assert (threads["published"], threads["source"]) == ("not found here", "")
    assert "at least 4 workers" in rows["hybrid: pipelines side by side"]["missing"]


def test_use_over_time_is_there_as_numbers(files):
    rows = list(csv.DictReader(files["figure-lerat-simplebig-use.csv"].splitlines()))
    assert {row["line"] for row in rows} == {"2 hosts: processes", "processes", "sequential"}
    assert len(rows) == 180
    assert rows[0]["busy_cores"] == "2.0"
    assert rows[0]["io_wait_cores"] == ""
    assert "noise_scale" in rows[0]  # which had a plot alone


def test_only_the_formats_that_were_asked_for_are_made():
    assert list(report_files(sections(), NOON, ["html"])) == ["report.html"]
    assert all(name.endswith(".csv") for name in report_files(sections(), NOON, ["csv"]))


def test_names_are_known_before_anything_is_measured(files):
    """A figure of the user's own was found in the way after half an hour of measuring."""
    nothing = sections(StoredEvidence())
    assert files.keys() <= possible_names(nothing, FORMATS)
    for name in FORMATS:
        assert possible_names(nothing, [name]) >= report_files(nothing, NOON, [name]).keys()
    assert possible_names(nothing, ["html"]) == {"report.html"}


def test_a_database_without_anything_makes_a_whole_report():
    made = report_files(sections(StoredEvidence()), NOON, FORMATS)
    assert "no sweep stored: ddlplan sweep" in made["report.html"]
    assert not [name for name in made if name.endswith(".svg")]


def test_names_from_the_database_can_end_no_element_and_no_cell():
    study = paper_cases.study()
    hostile = replace(study, record=replace(study.record, node=HOSTILE))
    made = report_files(sections(StoredEvidence(studies={"simplebig": [hostile]})), NOON, FORMATS)
    assert "<script" not in made["report.html"]
    assert "\x1b" not in made["report.html"] + made["report.md"]
    assert "\\|\\*" in made["report.md"]
    assert not re.search(r"(?<!\\)<script", made["report.md"])


def test_text_fits_80_columns_with_the_reasons_below_their_rows():
    for section in sections():
        for table in section.tables:
            text = paper_table_text(table, Terminal(width=80))
            assert max(map(len, text.splitlines())) <= 80
            assert "\n    Ours: " in text or "missing" not in text or "lerat" not in table.key


@pytest.mark.parametrize("width", [80, 50])
def test_tables_of_sweeps_and_trainings_fit_a_narrow_terminal_and_lose_no_figure(width):
    """They were 111 and 115 characters wide."""
    measured = "cifar_resnet44,images=2000,lr=0.01"
    two = paper_cases.training(replace(worth_cases.BEST, node_batch=128), 180.0, number=2)
    one = paper_cases.epochs(0.5, 0.81)
    held = replace(
        paper_cases.EVIDENCE,
        trainings={
            "cifar_resnet44": [
                two,
                paper_cases.training(replace(worth_cases.ONE_CORE, node_batch=128), 100.0, **one),
            ]
        },
        sweeps={
            "mnist_cnn": [paper_cases.swept(sample_sweep({8192: (10, 6)}), use_case="mnist_cnn")],
            measured: [paper_cases.swept(sample_sweep({32: (10, 6)}), use_case=measured)],
        },
    )
    tables = {table.key: table for section in sections(held) for table in section.tables}
    texts = {
        key: Text.from_ansi(paper_table_text(table, Terminal(width=width, color=True))).plain
        for key, table in tables.items()
    }
    for key in ("mnist-batches", "cifar-scaling", "cifar-trainings"):
        assert max(map(len, texts[key].splitlines())) <= width
        for row in tables[key].rows:
            numbers = [cell.text for cell in row.values() if cell.low is not None]
            assert all(number in " ".join(texts[key].split()) for number in numbers)
    # None of these has to move below its row on the wider one.
    assert ("ACCURACY," in texts["mnist-batches"]) is (width == 80)
    assert "Published accuracy, %: 92.83" in " ".join(texts["cifar-trainings"].split())
