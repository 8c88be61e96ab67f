"""Scaling over workers: throughput, and the time to an accuracy that can be compared."""

from __future__ import annotations

import pytest
from paper_cases import NODE, epochs, study, training
from worth_cases import BEST, ONE_CORE

from planner.paper_tables import load_paper
from planner.paper_tables._evidence import StoredEvidence

PAPER = load_paper("cifar_scaling")
HELD = StoredEvidence(
    studies={"cifar_resnet44": [study("cifar_resnet44")]},
    trainings={
        "cifar_resnet44": [
            training(BEST, 180.0, number=2, **epochs(0.5, 0.72, 0.83, epoch_s=55.0)),
            training(ONE_CORE, 100.0, **epochs(0.5, 0.7, 0.81)),
        ]
    },
)


def test_scaling_and_time_to_accuracy_by_number_of_workers():
    (table,) = PAPER.tables(HELD)
    one, two, paper = table.rows
    assert (one["workers"].number, two["workers"].number) == (1, 2)
    scaling = two["scaling"]
    assert scaling.number == pytest.approx(1.8, rel=0.02)
    assert scaling.low < 1.5 < 2.1 < scaling.high  # they ran at different times
    assert (one["time"].number, two["time"].number) == (300.0, 165.0)
    assert two["accuracy"].number == pytest.approx(83)
    assert "80 % on the test set" in table.notes[0]
    assert paper["published_accuracy"].number == 92.83
    assert one["data"].text == "generated"


def test_trainings_of_other_machines_and_data_are_rows_of_their_own():
    """They were averaged: a scaling over workers that was one over machines."""
    given = [
        training(BEST, 180.0, number=4, **epochs(0.4)),
        training(ONE_CORE, 100.0, number=3, data="/data/cifar", **epochs(0.9)),
        training(BEST, 900.0, number=2, machine="large", **epochs(0.4)),
        training(ONE_CORE, 100.0, **epochs(0.4)),
    ]
    held = StoredEvidence(trainings={"cifar_resnet44": given})
    *rows, _ = PAPER.tables(held)[0].rows
    assert [(row["machine"].text, row["data"].text, row["workers"].number) for row in rows] == [
        ("large", "generated", 2),
        ("vm", "/data/cifar", 1),
        ("vm", "generated", 1),
        ("vm", "generated", 2),
    ]
    assert [row["rate"].number for row in rows] == pytest.approx([900, 100, 100, 180], rel=0.01)
    assert "no training with one worker" in rows[0]["scaling"].missing
    assert rows[3]["scaling"].number == pytest.approx(1.8, rel=0.02)
    labels = [curve.label for curve in PAPER.plots(held)[0].curves]
    assert labels == ["large: generated", "vm: cifar", "vm: generated"]


def test_a_single_training_claims_no_narrow_time():
    (table,) = PAPER.tables(HELD)
    time = table.rows[0]["time"]
    assert (time.low, time.high) == (150.0, 600.0)


def test_a_training_that_was_ended_early_still_shows_its_throughput():
    held = StoredEvidence(trainings={"cifar_resnet44": [training(ONE_CORE, 100.0, epochs_done=())]})
    row = PAPER.tables(held)[0].rows[0]
    assert row["rate"].number == pytest.approx(100, rel=0.01)
    assert "trains longer" in row["time"].missing
    rates, times = PAPER.plots(held)
    assert rates.curves
    assert not times.curves
    assert times.notes


def test_both_numbers_of_workers_are_wanted_after_the_trials_that_give_their_plans():
    trial, *trainings = PAPER.wanted(StoredEvidence(), NODE)
    assert trial.key == "trial cifar_resnet44 processes"
    assert [one.key for one in trainings] == [
        "training cifar_resnet44 one worker",
        "training cifar_resnet44 several workers",
    ]
    assert {one.after for one in trainings} == {trial.key}
