"""Sweeps of MNIST: each batch on each of the devices, and what the sweep shows in words."""

from __future__ import annotations

from dataclasses import replace

import pytest
from paper_cases import MACHINE, NODE, swept
from sweep_samples import SETTINGS, failed_point, sample_point, sample_sweep

from planner.paper_tables import load_paper
from planner.paper_tables._evidence import StoredEvidence
from planner.paper_tables._values import EMPTY
from planner.paper_tables._wanted import WantedSweep
from planner.report.papers.plots import paper_figures, paper_plot_csv

PAPER = load_paper("mnist_batches")
SWEEP = sample_sweep({32: (10, 6), 64: (10, 10)})


def held(sweep=SWEEP, **changes):
    return StoredEvidence(sweeps={"mnist_cnn": [swept(sweep, use_case="mnist_cnn", **changes)]})


def test_every_point_is_a_row_with_its_intervals():
    (table,) = PAPER.tables(held())
    rows = [row for row in table.rows if "batch" in row]
    shown = [(row["batch"].number, row["devices"].text) for row in rows]
    assert shown == [(batch, label) for batch in (32, 64) for label in ("1 worker", "2 workers")]
    for row in rows:
        assert row["epoch"].low < row["epoch"].number < row["epoch"].high
        assert row["accuracy"].low < 98 < row["accuracy"].high
        assert row["published"].text == "not found here"
        assert row["data"].text == "generated"
    assert rows[1]["speedup"].number > 1.5
    assert any("2 workers" in note for note in table.notes)


def test_machine_of_a_sweep_is_named_with_its_hardware():
    (table,) = PAPER.tables(replace(held(), machines=[MACHINE]))
    (note,) = [note for note in table.notes if note.startswith("mnist_cnn: sweep 1 on ")]
    assert "vm: x86_64, 2 usable cores, 8 GiB, no GPU; torch 2.15.0, ddlplan 0.1.0" in note
    assert note.endswith("; seed 0; generated data.")  # a narrow terminal has no room for DATA
    (given,) = PAPER.tables(held(data="/data/mnist"))
    assert not any("generated" in note for note in given.notes)


def test_case_without_a_sweep_names_the_command():
    (table,) = PAPER.tables(held())
    why = table.rows[-1]["epoch"].missing
    assert why.startswith("no sweep stored: ddlplan sweep --use-case mnist_resnet18 --batches 32,")


def test_batches_that_a_sweep_lacks_are_a_row_with_the_command_that_trains_all():
    """Of nine batches, six were neither shown nor missing: a report measures three."""
    (table,) = PAPER.tables(held())
    command = "--batches 32,64,128,256,512,1024,2048,4096,8192"
    said = f"sweep 1 has no batches 128 to 8192: ddlplan sweep --use-case mnist_cnn {command}"
    assert said in [row["epoch"].missing for row in table.rows]
    begun = replace(SWEEP, points=SWEEP.points[:3])
    (table,) = PAPER.tables(held(begun, batches=(32, 64), data="/my data"))
    reasons = [row["epoch"].missing for row in table.rows[3:5]]
    assert reasons[0] == "sweep 1 has not trained batch 64 on all devices: its command goes on"
    assert reasons[1].endswith(f"--use-case mnist_cnn --data '/my data' {command}")


def test_gpus_that_a_machine_does_not_have_are_a_row_with_the_reason():
    (table,) = PAPER.tables(replace(held(), machines=[MACHINE]))
    (row,) = [row for row in table.rows if row.get("devices", EMPTY).text == "GPUs"]
    assert row["epoch"].missing == "no GPU on vm: no NVIDIA driver"
    (table,) = PAPER.tables(held())  # where no probe of it is stored, nobody knows
    (row,) = [row for row in table.rows if row.get("devices", EMPTY).text == "GPUs"]
    assert row["epoch"].missing.startswith("sweep 1 has none: ddlplan sweep --devices ")
    on_gpus = replace(SETTINGS[0], plan=replace(SETTINGS[0].plan, devices=("cuda:0",)))
    (table,) = PAPER.tables(held(settings=(on_gpus, SETTINGS[1])))
    assert "GPUs" not in [row.get("devices", EMPTY).text for row in table.rows]


def test_numbers_of_workers_that_a_sweep_lacks_are_a_row_with_the_command_that_trains_all():
    """A sweep of one's own with one worker was shown as if the machine had no more."""
    alone = held(sample_sweep({32: (10,), 64: (10,)}), settings=SETTINGS[:1])
    (table,) = PAPER.tables(replace(alone, machines=[MACHINE]))
    (row,) = [row for row in table.rows if row.get("devices", EMPTY).text == "others"]
    why = row["epoch"].missing
    command = "ddlplan sweep --use-case mnist_cnn --batches "
    assert why.startswith(f"sweep 1 has no figures of 2 workers: {command}")
    (table,) = PAPER.tables(replace(held(), machines=[MACHINE]))
    assert "others" not in [row.get("devices", EMPTY).text for row in table.rows]


def test_failed_point_is_a_row_with_its_reason():
    sweep = replace(SWEEP, points=[*SWEEP.points[:3], failed_point(64, 1)])
    (table,) = PAPER.tables(held(sweep))
    assert table.rows[3]["epoch"].missing == "loss=inf at step 3"


def test_plots_and_numbers_are_those_of_the_sweep():
    cnn, resnet = PAPER.plots(held())
    assert cnn.title == "mnist_cnn over batches, generated data"
    assert PAPER.plots(held(data="/data/mnist"))[0].title == "mnist_cnn over batches"
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
    done = {"batches": (64, 512, 4096)}
    assert PAPER.wanted(held(**done), NODE) == []
    assert len(PAPER.wanted(held(**done, is_finished=False), NODE)) == 1
    # A finished sweep of one batch was enough for good.
    assert len(PAPER.wanted(held(batches=(64,)), NODE)) == 1
    assert PAPER.wanted(held(batches=(32, 64, 512, 4096)), NODE) == []


def test_a_sweep_of_other_data_than_those_asked_for_does_not_stand_for_one():
    """Generated figures kept real data from ever being measured."""
    stored = replace(held(batches=(64, 512, 4096)), data={"mnist_cnn": "/data/mnist"})
    assert len(PAPER.wanted(stored, NODE)) == 1
    real = replace(held(batches=(64, 512, 4096), data="/data/mnist"), data=stored.data)
    assert PAPER.wanted(real, NODE) == []


def test_a_sweep_of_given_data_is_shown_before_one_of_generated_data():
    given = replace(SWEEP, points=SWEEP.points[:1])
    of_given = held(given, data="/data/mnist").swept("mnist_cnn")
    (table,) = PAPER.tables(
        StoredEvidence(sweeps={"mnist_cnn": [*held().swept("mnist_cnn"), *of_given]})
    )
    assert {row["data"].text for row in table.rows[:-1]} == {"/data/mnist"}
    assert "mnist_cnn: other stored sweeps, not shown: 1." in table.notes


@pytest.mark.parametrize(
    ("first", "why"),
    [
        ([failed_point(32)], "1 worker failed: loss=inf at step 3"),
        ([], "1 worker: not trained yet with this batch"),
        ([sample_point(32, turns=2)], "too few turns beside 1 worker"),
    ],
    ids=["failed", "absent", "few turns"],
)
def test_a_speedup_that_is_missing_names_what_the_first_devices_lack(first, why):
    """It said "too few turns" where the first devices had failed."""
    (table,) = PAPER.tables(held(replace(SWEEP, points=[*first, SWEEP.points[1]])))
    row = next(row for row in table.rows if row.get("devices", EMPTY).text == "2 workers")
    assert row["speedup"].missing == why


def test_a_point_without_speedup_loss_or_accuracy_says_why():
    """A point that was taken after a resume had empty cells."""
    points = [
        SWEEP.points[0],
        replace(SWEEP.points[1], side_by_side="vm later", epochs=()),
    ]
    (table,) = PAPER.tables(held(replace(SWEEP, points=points)))
    assert "speedup" not in table.rows[0]
    later = table.rows[1]
    assert later["speedup"].missing == "not run side by side with 1 worker"
    assert later["loss"].missing == later["accuracy"].missing == "not measured on a test set"
    assert any("losses have no interval" in note for note in table.notes)
