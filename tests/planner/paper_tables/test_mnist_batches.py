"""Sweeps of MNIST: each batch on each of the devices, and what the sweep shows in words."""

from __future__ import annotations

from dataclasses import replace

from paper_cases import NODE
from sweep_samples import failed_point, sample_sweep

from planner.paper_tables import load_paper
from planner.paper_tables._evidence import StoredEvidence
from planner.paper_tables._wanted import WantedSweep
from planner.report.papers.plots import paper_figures, paper_plot_csv

PAPER = load_paper("mnist_batches")
SWEEP = sample_sweep({32: (10, 6), 64: (10, 10)})


def held(sweep=SWEEP, **changes):
    record = replace(sweep.record, use_case="mnist_cnn", fingerprint=NODE.fingerprint(), **changes)
    return StoredEvidence(sweeps={"mnist_cnn": [replace(sweep, record=record)]})


def test_every_point_is_a_row_with_its_intervals():
    (table,) = PAPER.tables(held())
    rows = [row for row in table.rows if row["use_case"].text == "mnist_cnn"]
    assert [(row["batch"].number, row["devices"].text) for row in rows] == [
        (32, "1 worker"),
        (32, "2 workers"),
        (64, "1 worker"),
        (64, "2 workers"),
    ]
    for row in rows:
        assert row["epoch"].low < row["epoch"].number < row["epoch"].high
        assert row["accuracy"].low < 98 < row["accuracy"].high
        assert row["published"].text == "not found here"
        assert row["data"].text == "generated"
    assert rows[1]["speedup"].number > 1.5
    assert any("2 workers" in note for note in table.notes)


def test_case_without_a_sweep_names_the_command():
    (table,) = PAPER.tables(held())
    why = table.rows[-1]["epoch"].missing
    assert why.startswith("no sweep stored: ddlplan sweep --use-case mnist_resnet18 --batches 32,")


def test_failed_point_is_a_row_with_its_reason():
    sweep = replace(SWEEP, points=[*SWEEP.points[:3], failed_point(64, 1)])
    (table,) = PAPER.tables(held(sweep))
    assert table.rows[3]["epoch"].missing == "loss=inf at step 3"


def test_plots_and_numbers_are_those_of_the_sweep():
    cnn, resnet = PAPER.plots(held())
    assert [figure.title for figure in paper_figures(cnn)][:2] == [
        "Time per epoch",
        "Speed against 1 worker",
    ]
    assert paper_plot_csv(cnn).count("\n") == 5
    assert paper_figures(resnet) == []
    assert paper_plot_csv(resnet) == ""


def test_a_sweep_that_is_not_done_here_is_wanted():
    (wanted,) = PAPER.wanted(StoredEvidence(), NODE)
    assert isinstance(wanted, WantedSweep)
    assert PAPER.wanted(held(), NODE) == []
    assert len(PAPER.wanted(held(is_finished=False), NODE)) == 1
