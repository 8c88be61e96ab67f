"""Sweeps as text, CSV and JSON, and their plots."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from sweep_samples import failed_point, sample_point, sample_sweep
from worth_cases import NODE

from planner.report.figures.batch_plot import BatchCurve, BatchPoint, batch_plot
from planner.report.figures.sweep_figures import sweep_figures
from planner.report.page.sweep import sweep_page
from planner.report.sweeps.tables import (
    interval_note,
    point_line,
    point_rows,
    sweep_csv,
    sweep_json,
    sweep_text,
    sweeps_table,
)
from planner.report.table import Terminal
from planner.sweeps.findings import all_figures


@pytest.fixture(scope="module")
def sweep():
    sweep = sample_sweep({32: (40, 24), 64: (20, 13), 128: (10, 9)}, {128: 0.9})
    return replace(sweep, points=[*sweep.points[:-1], failed_point(128, 1)])


def test_table_has_a_line_for_each_point_and_the_findings_below_it(sweep):
    text = sweep_text(sweep, Terminal(width=80))
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(
        r"^ +32  1 worker +\d+\.\d ±\d+\.\d +98\.0 % \(97\.7 to 98\.3\) +0\.1$", text, re.M
    )
    assert "nan loss: loss=inf at step 3" in text
    assert "With 1 worker, accuracy falls from batch 128 on" in " ".join(text.split())


@pytest.mark.parametrize("width", [None, 80])
def test_reason_of_a_failure_is_obeyed_by_no_terminal_where_findings_tell_it(sweep, width):
    """The table escaped its control characters, the sentence below it did not."""
    failed = failed_point(128, 1, "RuntimeError: \x1b]0;title\x07")
    text = sweep_text(replace(sweep, points=[*sweep.points[:-1], failed]), Terminal(width=width))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert text.count("\\x1b]0;title\\x07") == 2


@pytest.mark.parametrize(
    ("accuracy", "test_samples", "words"),
    [
        (0.98, 10_000, "accuracy is on the test set after the last epoch, its interval that of"),
        (None, 256, "loss is the mean over 256 samples of the test set"),
        (None, 0, "there is no test set"),
    ],
)
def test_note_below_the_table_speaks_of_what_was_measured(sweep, accuracy, test_samples, words):
    record = replace(sweep.record, test_samples=test_samples)
    points = [sample_point(32, accuracy=accuracy)]
    note = interval_note(replace(sweep, record=record, points=points))
    assert words in note
    assert "{" not in note


def test_large_losses_have_no_power_of_ten(sweep):
    """The story: a loss of 12346 was "1.235e+04" in tables and in the line that says a point."""
    large = replace(sweep, points=[sample_point(32, loss=12345.6), *sweep.points[1:]])
    assert point_line("1 worker", all_figures(large)[0]).endswith("  loss 12346")
    assert point_rows(large)[0]["loss"] == "12346"
    *_, losses = sweep_figures(large)
    assert losses.rows[0][:2] == ("32", "12346")


def test_generated_samples_are_marked_wherever_results_are_shown(sweep):
    record = replace(sweep.record, use_case="cifar_resnet44,images=2000", is_generated=True)
    made_up = replace(sweep, record=record)
    for text in (
        sweep_text(made_up, Terminal(width=80)),
        sweep_csv(made_up),
        sweeps_table([record], Terminal(width=80)),
        sweep_page(made_up),
    ):
        assert "generated" in text
    assert sweep_json(made_up)["is_generated"] is True
    assert "generated" not in sweep_text(sweep, Terminal())


def test_sweep_names_the_hardware_and_the_software_that_its_times_are_of(sweep):
    known = replace(sweep, hardware=NODE)
    for text in (sweep_text(known, Terminal()), sweep_page(known)):
        assert "x86_64, 2 usable cores, 8 GiB, no GPU" in text
        assert "python 3.11.7, torch 2.15.0, ddlplan 0.1.0" in text
    assert "no probe of it is stored" in sweep_text(sweep, Terminal())


def test_list_has_a_line_for_each_sweep(sweep):
    lines = sweeps_table([sweep.record], Terminal()).splitlines()
    titles = " ".join(lines[0].split())
    assert titles == "ID USE CASE POINTS EPOCHS BATCHES DEVICES HOST BEGUN"
    assert "6/6" in lines[1]
    assert "32 to 128" in lines[1]


def test_csv_has_intervals_in_columns_of_their_own(sweep):
    rows = list(csv.DictReader(sweep_csv(sweep).splitlines()))
    first, failed = rows[0], rows[-1]
    assert float(first["epoch_s_low"]) < float(first["epoch_s"]) < float(first["epoch_s_high"])
    assert (failed["outcome"], failed["epoch_s"], failed["accuracy"]) == ("nan_loss", "", "")


def test_json_has_points_and_findings(sweep):
    document = json.loads(json.dumps(sweep_json(sweep), allow_nan=False))
    assert document["size"] == 6
    assert set(document["points"][0]["epoch_s"]) == {"median", "ci_low", "ci_high"}
    assert document["points"][1]["speedup"]["ci_low"] > 1
    assert any("accuracy falls" in one for one in document["findings"])


def test_figures_are_those_that_there_are_values_for(sweep):
    figures = sweep_figures(sweep)
    assert all("Bars are 95 % intervals" in figure.note for figure in figures[:3])
    assert "no interval" in figures[3].note
    titles = [figure.title for figure in figures]
    assert titles == [
        "Time per epoch",
        "Speed against 1 worker",
        "Accuracy on the test set after 2 epochs",
        "Loss on the test set after 2 epochs",
    ]
    bare = sample_sweep({32: (40,), 64: (20,)})
    bare = replace(
        bare,
        record=replace(bare.record, settings=bare.record.settings[:1]),
        points=[sample_point(batch, epoch_s=9, accuracy=None) for batch in (32, 64)],
    )
    assert len(sweep_figures(bare)) == 2


def test_sweep_without_points_has_no_figures(sweep):
    assert sweep_figures(replace(sweep, points=())) == []
    assert "0 of 6" in sweep_text(replace(sweep, points=()), Terminal())


def test_page_is_one_document_without_scripts_and_links(sweep):
    hostile = replace(sweep, record=replace(sweep.record, use_case="<script>alert(1)</script>"))
    page = sweep_page(hostile)
    assert "<script" not in page
    assert not re.search(r"(?:src|href)=", page)
    assert page.count("<figure") == 4


def texts(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter("text")]


def test_plot_names_its_axes_its_curves_and_its_intervals():
    curves = [
        BatchCurve(
            label=label,
            points=[
                BatchPoint(batch=b, value=v, low=v - 1, high=v + 1) for b, v in ((32, 9), (64, 5))
            ],
        )
        for label in ("1 worker", "2 workers")
    ]
    svg = batch_plot(curves, title="t", y_title="seconds per epoch", reference=("level", 4.0))
    axes = {"batch, samples per step", "seconds per epoch", "32", "64"}
    assert axes | {"1 worker", "2 workers", "95 % interval", "level"} <= set(texts(svg))


def test_intervals_of_two_curves_do_not_hide_each_other():
    points = [BatchPoint(batch=32, value=5, low=4, high=6)]
    svg = batch_plot([BatchCurve(label=x, points=points) for x in "ab"], title="t", y_title="y")
    bars = [
        path.get("d", "")
        for path in ElementTree.fromstring(svg).iter("path")
        if path.get("class") == "whisker"
    ]
    starts = {bar.split(" ")[0] for bar in bars[1:]}  # the first one is that of the legend
    assert len(starts) == 2


def test_only_as_many_batches_are_named_as_have_room():
    batches = [1000 + n for n in range(40)]
    curve = BatchCurve(label="a", points=[BatchPoint(batch=b, value=1.0) for b in batches])
    named = [text for text in texts(batch_plot([curve], title="t", y_title="y")) if text.isdigit()]
    assert 5 < len([one for one in named if int(one) >= 1000]) < 20


def test_failed_point_is_a_cross_and_interrupts_the_curve():
    points = [
        BatchPoint(batch=32, value=5.0),
        BatchPoint(batch=64, value=None, has_failed=True),
        BatchPoint(batch=128, value=4.0),
    ]
    svg = batch_plot([BatchCurve(label="a", points=points)], title="t", y_title="y")
    assert "failed" in texts(svg)
    (line,) = [
        path.get("d", "")
        for path in ElementTree.fromstring(svg).iter("path")
        if path.get("class") == "curve c0 d0" and path.get("d", "").count("M") == 2
    ]
    assert "L" not in line


def test_a_point_whose_speed_is_not_known_is_no_failure():
    """Two settings that did not take turns with each other had a cross, named failed."""
    sweep = sample_sweep({32: (40, 24), 64: (20, 13)})
    *others, last = sweep.points
    apart, failed = (
        sweep_figures(replace(sweep, points=[*others, one]))[1]
        for one in (replace(last, side_by_side="later"), failed_point(64, 1))
    )
    assert all(figure.title.startswith("Speed") for figure in (apart, failed))
    assert apart.rows[1] == ("64", "")
    assert "failed" not in texts(apart.svg)
    assert "failed" in texts(failed.svg)
