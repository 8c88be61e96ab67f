"""Scaling over workers: throughput, and the time to an accuracy, of like with like."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from imagined_machines import node_of
from paper_cases import MACHINE, NODE, epochs, study, swept, training
from sweep_samples import SETTINGS, failed_point, sample_point, sample_sweep
from worth_cases import BEST, ONE_CORE

from planner.paper_tables import load_paper
from planner.paper_tables._evidence import StoredEvidence
from planner.paper_tables._worker_sweep import best_accuracy

PAPER = load_paper("cifar_scaling")
MEASURED = "cifar_resnet44,images=2000,lr=0.01"
ONE = replace(ONE_CORE, node_batch=128)
TWO = replace(BEST, node_batch=128)
HELD = StoredEvidence(
    trainings={
        "cifar_resnet44": [
            training(TWO, 180.0, number=2, **epochs(0.5, 0.72, 0.83, epoch_s=55.0)),
            training(ONE, 100.0, **epochs(0.5, 0.7, 0.81)),
        ]
    },
)


def held_sweep(points=(), **changes):
    sweep = sample_sweep({32: (10, 6)}, {32: 0.55})
    sweep = replace(sweep, points=list(points) or sweep.points)
    evidence = swept(sweep, use_case=MEASURED, **changes)
    return StoredEvidence(sweeps={MEASURED: [evidence]}, machines=[MACHINE])


def training_rows(*given):
    _, table = PAPER.tables(StoredEvidence(trainings={"cifar_resnet44": given}))
    return table.rows[:-1]


def test_accuracy_that_is_no_number_is_not_the_best_one():
    epochs = [*sample_point(32, accuracy=math.nan).epochs, *sample_point(32, accuracy=0.5).epochs]
    assert best_accuracy(epochs) == 0.5


def test_a_sweep_shows_how_speed_and_time_to_accuracy_grow_with_the_workers():
    """The time to accuracy was missing after every measurement: nothing trained that long."""
    table, _ = PAPER.tables(held_sweep())
    one, two, gpus = table.rows
    assert (one["devices"].text, two["devices"].text) == ("1 worker", "2 workers")
    assert two["rate"].number == pytest.approx(6400 / 6, rel=0.05)
    assert two["scaling"].low < 1.67 < two["scaling"].high
    assert one["target"].number == two["target"].number == 50
    # The first epoch, of 10 and of 6 seconds with a second of validation, has it.
    assert (one["time"].number, two["time"].number) == pytest.approx((11, 7))
    assert two["time"].low < 7 < two["time"].high
    assert two["accuracy"].number == pytest.approx(55)
    assert gpus["devices"].text == "GPUs"
    assert gpus["rate"].missing == "no GPU on vm: no NVIDIA driver"
    assert any(note.startswith("Measured with the first 2,000 images") for note in table.notes)
    (note,) = (note for note in table.notes if note.startswith(f"{MEASURED}: sweep 1 on vm: "))
    assert "no GPU; torch" in note
    assert note.endswith("; epochs: 2; seed 0; generated data.")
    rates, times = PAPER.plots(held_sweep())
    assert [x for x, _ in rates.curves[0].points] == [1, 2]
    assert [x for x, _ in times.curves[0].points] == [1, 2]
    assert times.curves[0].label.endswith("to 50 %")
    assert rates.title == "CIFAR-10: samples per second over workers, generated data"
    assert rates.curves[0].label.startswith("vm: generated, 2,000 images")
    given, _ = PAPER.plots(held_sweep(data="/data/cifar"))
    assert given.title == "CIFAR-10: samples per second over workers"


def test_a_sweep_in_which_one_failed_and_none_learned_says_so():
    points = [sample_sweep({32: (10,)}, {32: 0.12}).points[0], failed_point(32, 1)]
    table, _ = PAPER.tables(held_sweep(points))
    one, two, _ = table.rows
    assert one["time"].missing == "12 % after 2 epochs, and 20 % is to be reached"
    assert two["rate"].missing == "loss=inf at step 3"
    table, _ = PAPER.tables(held_sweep([failed_point(32), sample_point(32, 1)]))
    assert table.rows[1]["scaling"].missing == "1 worker failed: loss=inf at step 3"


def test_a_sweep_of_ones_own_without_one_worker_is_not_called_times_one_worker():
    """Four workers over two were, and all batches were points of one curve."""
    label, plan = "4 workers", replace(SETTINGS[1].plan, processes=4, replicas=4, node_batch=4)
    settings = (SETTINGS[1], replace(SETTINGS[1], label=label, plan=plan))
    points = [
        sample_point(batch, number, epoch_s=epoch_s, settings=settings)
        for batch in (32, 64)
        for number, epoch_s in enumerate((10, 6))
    ]
    held = held_sweep(points, settings=settings, batches=(32, 64))
    table, _ = PAPER.tables(held)
    *rows, others, _ = table.rows  # the last one is of GPUs
    command = f"ddlplan sweep --use-case {MEASURED} --batches 32,64 --epochs 2"
    assert others["rate"].missing == f"sweep 1 has no figures of 1 worker: {command}"
    reasons = {row["scaling"].missing for row in rows}
    assert reasons == {"sweep 1 has no setting with one worker: ddlplan report --measure"}
    assert all(row["rate"].number for row in rows)
    rates, _ = PAPER.plots(held)
    assert [curve.label.rpartition(", ")[2] for curve in rates.curves] == ["batch 32", "batch 64"]
    assert [[x for x, _ in curve.points] for curve in rates.curves] == [[2, 4], [2, 4]]
    assert len(PAPER.wanted(held, NODE)) == 1  # so that --measure does give it
    whole = held_sweep().sweeps[MEASURED]
    both = replace(held, sweeps={MEASURED: [*held.sweeps[MEASURED], *whole]})
    assert PAPER.tables(both)[0].rows[1]["scaling"].number > 1.5


def test_a_sweep_that_is_not_done_here_is_wanted_with_as_many_workers_as_a_batch_has_samples():
    (wanted,) = PAPER.wanted(StoredEvidence(), node_of(6))
    assert (wanted.use_case, wanted.batches, wanted.devices) == (MEASURED, (32,), (1, 2, 4, 6))
    (wanted,) = PAPER.wanted(StoredEvidence(), node_of(96))
    assert wanted.devices == (1, 2, 4, 8, 16, 32)
    assert PAPER.wanted(held_sweep(), NODE) == []
    assert len(PAPER.wanted(held_sweep(batches=(64,)), NODE)) == 1
    asked = {"cifar_resnet44": "/data/cifar"}
    assert len(PAPER.wanted(replace(held_sweep(), data=asked), NODE)) == 1
    assert PAPER.wanted(replace(held_sweep(data="/data/cifar"), data=asked), NODE) == []
    assert len(PAPER.wanted(held_sweep(is_finished=False), NODE)) == 1


def test_why_it_was_not_measured_is_said():
    held = StoredEvidence(reasons={f"sweep {MEASURED}": "no time was left"})
    assert PAPER.tables(held)[0].rows[0]["rate"].missing == "no time was left"


def test_trainings_with_one_worker_and_with_two_are_compared():
    _, table = PAPER.tables(HELD)
    one, two, paper = table.rows
    assert (one["workers"].number, two["workers"].number) == (1, 2)
    scaling = two["scaling"]
    assert scaling.number == pytest.approx(1.8, rel=0.02)
    assert scaling.low < 1.5 < 2.1 < scaling.high  # they ran at different times
    assert (one["target"].number, two["target"].number) == (80, 80)
    assert (one["time"].number, two["time"].number) == (300.0, 165.0)
    assert (one["time"].low, one["time"].high) == (150.0, 600.0)  # a single training is no proof
    assert two["accuracy"].number == pytest.approx(83)
    assert paper["published_accuracy"].number == 92.83
    assert "two GPUs" in table.source
    assert one["data"].text == "generated"


def test_machines_of_trainings_are_named_with_their_hardware_though_no_study_of_them_is_shown():
    """Those that were tuned with `--precision auto` were names without hardware."""
    _, table = PAPER.tables(replace(HELD, machines=[MACHINE]))
    assert "vm: x86_64, 2 usable cores, 8 GiB, no GPU." in table.notes
    others = replace(MACHINE, id=2, fingerprint="sha256:other")
    _, table = PAPER.tables(replace(HELD, machines=[MACHINE, others]))
    assert "vm: several machines of this name are stored." in table.notes
    _, table = PAPER.tables(HELD)
    assert "vm: no probe under this name is stored." in table.notes
    _, table = PAPER.tables(replace(HELD, studies={"cifar_resnet44": [study("cifar_resnet44")]}))
    assert sum(note.startswith("vm: ") for note in table.notes) == 1


def test_trainings_of_other_machines_and_data_are_rows_of_their_own():
    """They were averaged: a scaling over workers that was one over machines."""
    rows = training_rows(
        training(TWO, 180.0, number=4, **epochs(0.4)),
        training(ONE, 100.0, number=3, data="/data/cifar", **epochs(0.9)),
        training(TWO, 900.0, number=2, machine="large", **epochs(0.4)),
        training(ONE, 100.0, **epochs(0.4)),
    )
    assert [(row["machine"].text, row["data"].text, row["workers"].number) for row in rows] == [
        ("large", "generated", 2),
        ("vm", "/data/cifar", 1),
        ("vm", "generated", 1),
        ("vm", "generated", 2),
    ]
    assert [row["rate"].number for row in rows] == pytest.approx([900, 100, 100, 180], rel=0.01)
    assert "no such training with one worker" in rows[0]["scaling"].missing
    assert rows[3]["scaling"].number == pytest.approx(1.8, rel=0.02)


@pytest.mark.parametrize(
    "other",
    [
        {"plan": replace(TWO, node_batch=1024)},
        {"plan": replace(TWO, precision="bf16")},
        {"plan": replace(TWO, lr_scaling="linear")},
        {"plan": replace(TWO, threads_per_process=2)},
        {"epochs": 164},
    ],
    ids=lambda other: " ".join(other),
)
def test_trainings_that_learn_or_compute_otherwise_are_compared_with_none_of_one_worker(other):
    """Two workers with eight times the batch were called that much faster than one."""
    plan = other.get("plan", TWO)
    changes = {key: value for key, value in other.items() if key != "plan"}
    rows = training_rows(
        training(plan, 180.0, number=2, **epochs(0.9), **changes),
        training(ONE, 100.0, **epochs(0.5)),
    )
    two = next(row for row in rows if row["workers"].number == 2)
    one = next(row for row in rows if row["workers"].number == 1)
    assert "no such training with one worker" in two["scaling"].missing
    assert (one["target"].number, two["target"].number) == (50, 90)


def test_strategies_are_rows_and_curves_of_their_own():
    pipeline = replace(TWO, strategy="pipeline", replicas=1)
    held = StoredEvidence(
        trainings={
            "cifar_resnet44": [
                training(pipeline, 120.0, number=3),
                training(TWO, 180.0, number=2),
                training(ONE, 100.0),
            ]
        }
    )
    _, table = PAPER.tables(held)
    assert [row["plan"].text for row in table.rows[1:3]] == ["pipeline", "processes"]
    rates, _ = PAPER.plots(held)
    assert [[x for x, _ in curve.points] for curve in rates.curves] == [[1, 2], [1, 2]]
    assert [curve.points[1][1].median for curve in rates.curves] == pytest.approx(
        [120, 180], rel=0.01
    )


def test_two_trainings_of_a_row_both_count_and_their_spread_shows():
    """The newest alone was shown."""
    (row,) = training_rows(training(ONE, 100.0, number=2), training(ONE, 80.0))
    assert row["trainings"].number == 2
    assert row["rate"].number == pytest.approx(90, rel=0.01)
    assert row["rate"].low <= 80
    assert row["rate"].high >= 100


def test_a_training_that_missed_the_accuracy_is_not_left_out_of_its_time():
    """The time of those alone that reached it was too short."""
    rows = training_rows(
        training(ONE, 100.0, number=2, **epochs(0.1, 0.1, 0.1)),
        training(ONE, 100.0, **epochs(0.1, 0.5)),
    )
    (row,) = rows
    assert row["time"].missing == "1 of 2 trainings missed it: a time would be too short"


def test_a_training_that_ended_before_others_had_the_accuracy_says_nothing_of_its_time():
    (row,) = training_rows(
        training(ONE, 100.0, number=2, **epochs(0.1)),
        training(ONE, 100.0, **epochs(0.1, 0.5)),
    )
    assert row["time"].number == 200


def test_a_resumed_training_has_no_time_to_an_accuracy():
    """It was counted from where it had gone on."""
    later = training(ONE, 100.0, **epochs(0.4, 0.9))
    resumed = later.record.epochs_done[1:]
    (row,) = training_rows(training(ONE, 100.0, epochs_done=resumed))
    assert row["time"].missing is not None
    assert row["accuracy"].number == pytest.approx(90)


def test_a_training_that_was_ended_early_still_shows_its_throughput():
    held = StoredEvidence(trainings={"cifar_resnet44": [training(ONE, 100.0, epochs_done=())]})
    row = PAPER.tables(held)[1].rows[0]
    assert row["rate"].number == pytest.approx(100, rel=0.01)
    assert "trains longer" in row["time"].missing
    rates, times = PAPER.plots(held)
    assert rates.curves
    # Its curve is of all images: that of 2,000 was described below it, and no sweep is stored.
    assert rates.notes == ("with fewer images: missing: not measured: ddlplan report --measure.",)
    assert not times.curves
    assert times.notes
