"""Results of data that were made up are marked, and trials name what they are of."""

from __future__ import annotations

from dataclasses import replace

import sample_plan
from sample_plan import NOON
from training_samples import TRAINING

from launch.plan import Plan
from planner.report.plans import plan_text, plans_csv, plans_table
from planner.report.runs import run_text, runs_table
from planner.report.table import Terminal
from planner.report.trials import trials_csv, trials_table
from planner.trials.result import Outcome, Role, TrialResult
from planner.tuning.study import StoredTrial

MADE_UP = replace(sample_plan.FOUND, id=7, use_case="mnist_cnn,lr=0.1", is_generated=True)
REAL = replace(MADE_UP, id=8, is_generated=False)
NARROW = Terminal(width=80)


def test_plans_of_made_up_data_are_marked_and_others_are_not():
    heading, first, second = plans_table([(MADE_UP, ()), (REAL, ())], NARROW).splitlines()
    assert "DATA" in heading
    assert "generated" in first
    assert "generated" not in second
    assert "DATA" not in plans_table([(REAL, ())], NARROW)
    assert plans_csv([(MADE_UP, ())]).splitlines()[1].count("true")
    assert "generated: the use case made its samples up" in plan_text(MADE_UP, (), [], NARROW)
    assert "generated" not in plan_text(REAL, (), [], NARROW)


def test_trainings_with_made_up_data_are_marked():
    made_up = replace(TRAINING, is_generated=True)
    real = replace(TRAINING, is_generated=False, data="/data/mnist")
    assert "generated" in runs_table([made_up], NARROW).splitlines()[1]
    assert "generated" not in runs_table([real], NARROW)
    assert "generated: the use case made its samples up" in run_text(made_up, {}, NARROW)
    assert "/data/mnist" in run_text(real, {}, NARROW)


def trial(number: int, use_case: str) -> StoredTrial:
    result = TrialResult(
        plan=Plan(strategy="sequential", node_batch=32),
        role=Role.SEARCH,
        outcome=Outcome.CRASH,
        reason="it ended",
        elapsed_s=1.0,
    )
    return StoredTrial(
        id=number, study_id=1, number=number, created_at=NOON, result=result, use_case=use_case
    )


def test_trials_of_several_use_cases_name_them():
    one, other = trial(0, "mnist_cnn"), trial(1, "mnist_cnn,lr=0.1")
    assert "mnist_cnn" not in trials_table([one, one], NARROW)
    assert "mnist_cnn,lr=0.1" in trials_table([one, other], Terminal())
    assert trials_csv([other]).splitlines()[1].endswith('"mnist_cnn,lr=0.1"')
