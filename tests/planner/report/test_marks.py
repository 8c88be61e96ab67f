"""Results of data that were made up are marked, and trials name what they are of."""

from __future__ import annotations

import csv
from dataclasses import replace

import sample_plan
import worth_cases
from paper_cases import FACTS, study, training
from sweep_samples import sample_record
from training_samples import TRAINING

from planner.commands.sweep import SweepDisplay
from planner.exports.formats import export_text
from planner.paper_tables import load_paper
from planner.paper_tables._evidence import StoredEvidence
from planner.report.comparison import PlanComparison, comparison_text
from planner.report.output import Output
from planner.report.papers.plots import paper_plot_csv
from planner.report.plans import plan_text, plans_csv, plans_table
from planner.report.runs import mark_title, run_text, runs_csv, runs_table
from planner.report.table import Terminal
from planner.report.training_comparison import TrainingComparison, TrainingSide
from planner.report.trials import trial_json, trials_csv, trials_table
from planner.sweeps.reports import SweepOpened

MADE_UP = replace(sample_plan.FOUND, id=7, use_case="mnist_cnn,lr=0.1", is_generated=True)
REAL = replace(MADE_UP, id=8, is_generated=False)
NARROW = Terminal(width=80)


def test_plans_of_made_up_data_are_marked_and_others_are_not():
    heading, first, second = plans_table([(MADE_UP, ()), (REAL, ())], Terminal()).splitlines()
    assert "DATA" in heading
    assert "generated" in first
    assert "generated" not in second
    assert "DATA" not in plans_table([(REAL, ())], NARROW)
    assert plans_csv([(MADE_UP, ())]).splitlines()[1].count("true")
    assert "generated: the use case made its samples up" in plan_text(MADE_UP, (), [], NARROW)
    assert "generated" not in plan_text(REAL, (), [], NARROW)
    for script in ("sbatch", "shell", "python"):
        assert "# Its data were generated: the use case made" in export_text(MADE_UP, script)
        assert "generated" not in export_text(REAL, script)


def test_trainings_with_made_up_data_are_marked():
    made_up = replace(TRAINING, is_generated=True)
    real = replace(TRAINING, is_generated=False, data="/data/mnist")
    assert "generated" in runs_table([made_up], NARROW).splitlines()[1]
    assert "generated" not in runs_table([real], NARROW)
    assert "generated: the use case made its samples up" in run_text(made_up, {}, NARROW)
    assert "/data/mnist" in run_text(real, {}, NARROW)
    rows = csv.DictReader(runs_csv([made_up, real]).splitlines())
    assert [row["is_generated"] for row in rows] == ["true", "false"]
    assert mark_title("Training 1: mnist", made_up) == "Training 1: mnist, generated data"
    assert mark_title("Trainings 1 and 1", real, real) == "Trainings 1 and 1"
    one = mark_title("Trainings 2 and 1", replace(made_up, id=2), real)
    assert one == "Trainings 2 and 1, generated data in training 2"


def test_a_sweep_that_begins_says_that_its_data_are_made_up(capsys):
    """Its points are shown line by line, and it may be interrupted before its table."""
    record = replace(sample_record([32]), id=1, is_generated=True)
    with SweepDisplay(Output("sweep", as_json=False)) as display:
        display(SweepOpened(record=record, points=()))
    assert "sweep 1: 2 points, generated data; the settings" in capsys.readouterr().err


def test_comparisons_mark_made_up_data():
    text = comparison_text(PlanComparison(MADE_UP, REAL), NARROW)
    (line,) = (line for line in text.splitlines() if line.startswith("data"))
    assert line.split() == ["data", "*", "generated"]
    assert "generated" not in comparison_text(PlanComparison(REAL, REAL), NARROW)
    sides = [
        TrainingSide(record=replace(TRAINING, is_generated=True)),
        TrainingSide(record=replace(TRAINING, id=2, is_generated=False, data="/data/mnist")),
    ]
    trainings = TrainingComparison(first=sides[0], second=sides[1])
    assert ("data", "generated", "/data/mnist") in trainings.rows()


def test_tables_of_papers_mark_made_up_data():
    held = StoredEvidence(
        studies={"simplebig": [study(facts=replace(FACTS, is_generated=True))]},
        trainings={"simplebig": [training(worth_cases.BEST, 40.0, is_generated=True)]},
    )
    tables = load_paper("lerat_2022").tables(held)
    assert all(any("; generated data." in note for note in one.notes) for one in tables[:3])
    (use, _) = load_paper("lerat_2022").plots(held)
    assert any(note.endswith("training 1 on vm, generated data.") for note in use.notes)
    assert use.title.endswith("(figures 2 to 5 of the paper), generated data")
    rows = csv.DictReader(paper_plot_csv(use).splitlines())
    assert {(row["line"], row["data"]) for row in rows} == {("processes", "generated")}


def test_a_plot_of_made_up_and_of_given_data_says_that_a_part_is_made_up():
    made_up = training(worth_cases.BEST, 40.0, is_generated=True)
    given = training(worth_cases.ONE_CORE, 20.0, number=2, data="/photos")
    held = StoredEvidence(trainings={"simplebig": [made_up, given]})
    (use, _) = load_paper("lerat_2022").plots(held)
    assert use.title.endswith(", partly generated data")
    rows = csv.DictReader(paper_plot_csv(use).splitlines())
    marks = {(row["line"], row["data"]) for row in rows}
    assert marks == {("processes", "generated"), ("sequential", "")}


def test_trials_of_several_use_cases_name_them():
    names = ("mnist_cnn", "mnist_cnn,lr=0.1")
    one, other = (replace(worth_cases.TRIALS[0], use_case=name) for name in names)
    assert "mnist_cnn" not in trials_table([one, one], NARROW)
    assert "mnist_cnn,lr=0.1" in trials_table([one, other], Terminal())
    (row,) = csv.DictReader(trials_csv([other]).splitlines())
    assert row["use_case"] == "mnist_cnn,lr=0.1"


def test_trials_with_made_up_data_are_marked():
    one = worth_cases.TRIALS[0]
    assert "generated" not in trials_table([one], NARROW)
    made_up = replace(one, is_generated=True)
    assert "generated" in trials_table([made_up], NARROW).splitlines()[1]
    (row,) = csv.DictReader(trials_csv([made_up]).splitlines())
    assert row["is_generated"] == "true"
    assert trial_json(made_up)["is_generated"] is True
