"""Budgets: what is tried in them on slow machines, and what is said of one that is too short."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest

from launch.workload import Workload
from planner.errors import NoPlanError
from planner.trials.result import Outcome, Role
from tests.planner.tuning.recorded_search import CASE, GPU, NODE, REQUEST, Recorded, Search


def test_short_search_leaves_smaller_batches_out(store, recorded):
    recorded.sample_s = lambda plan: 0.3
    found = Search(store, recorded, replace(REQUEST, budget_s=60)).tune().plan
    assert Role.SHARE not in {role for role, _ in recorded.ran}
    assert found.step_time.step_time.fixed_s == 0
    assert recorded.now_s <= 61


def test_longer_budget_tries_more_plans_and_lengthens_no_trial(store):
    """The story: each trial took longer, so that the tenth minute knew no more than the third."""
    tried = []
    for budget_s in (30, 120):
        asked = replace(REQUEST, budget_s=budget_s, max_batch=32, fresh=True)
        trials = Search(store, Recorded(), asked).tune().trials
        tried.append([result for result in trials if result.role is Role.SEARCH])
    few, many = tried
    assert len({result.plan for result in few}) < len({result.plan for result in many})
    rounds = [len(result.measurement.rounds) for result in many if result.measurement is not None]
    assert median(rounds) <= 4


def test_time_that_checks_have_taken_is_part_of_the_budget(store, recorded):
    Search(store, recorded, checked_s=60.0).tune()
    assert 90 < recorded.now_s <= 120


def test_batch_whose_trial_would_eat_the_budget_is_left_out(store, recorded):
    recorded.sample_s = lambda plan: 1.0 / plan.threads
    Search(store, recorded, replace(REQUEST, budget_s=400)).tune()
    assert {plan.node_batch for role, plan in recorded.ran if role is not Role.SHARE} == {32}


def tune_complexsmall(store, recorded, sample_s, **limits):
    """Search where the recorded machine is as slow as one that trains VGG16."""
    recorded.sample_s = lambda plan: sample_s / plan.threads
    request = replace(REQUEST, workload=Workload(use_case="complexsmall"), **limits)
    case = replace(CASE, default_batch=16, train_samples=712)
    return Search(store, recorded, request, case).tune()


def test_plans_on_all_cores_are_tried_where_one_core_is_slow(store, recorded):
    """Judged by the baseline's speed, no plan could show its own in time: none was tried."""
    outcome = tune_complexsmall(store, recorded, 1.1)
    assert any(role is Role.SEARCH for role, _ in recorded.ran)
    assert outcome.plan.plan.threads == 2
    assert outcome.warnings == ()


def test_budget_that_leaves_no_time_to_search_is_a_warning_with_a_budget_that_would_do(
    store, recorded
):
    outcome = tune_complexsmall(store, recorded, 3.0)
    assert {role for role, _ in recorded.ran} - {Role.SHARE} == {Role.DEFAULTS}
    (warning,) = outcome.warnings
    minutes = int(warning.rpartition("--budget ")[2].partition("m")[0])
    patient = Recorded()
    enough = tune_complexsmall(store, patient, 3.0, budget_s=60 * minutes, fresh=True)
    assert any(role is Role.SEARCH for role, _ in patient.ran)
    assert enough.warnings == ()


def test_budget_that_ends_before_a_plan_within_the_limits_is_measured_says_so(store, recorded):
    with pytest.raises(NoPlanError, match=r"before a plan within the limits .* raise --budget$"):
        Search(store, recorded, replace(REQUEST, batch_size=64, budget_s=1)).tune()


def tune_with_gpu(store, recorded, cpu_sample_s, gpu_sample_s, budget_s, *, calls=0):
    """Search for plans on a GPU, in a step of which calls take as long as so many samples."""
    recorded.sample_s = lambda plan: (
        cpu_sample_s if "cpu" in plan.devices else gpu_sample_s * (1 + calls / plan.node_batch)
    )
    request = replace(REQUEST, strategies=("gpu_data",), budget_s=budget_s)
    node = replace(NODE, gpus=(GPU,))
    Search(store, recorded, request, CASE, node).tune()
    return [plan.node_batch for role, plan in recorded.ran if role is Role.SEARCH]


def test_gpu_is_tried_with_large_batches_however_slow_the_cpu_is(store, recorded):
    batches = tune_with_gpu(store, recorded, 3.0, 0.0002, 180, calls=200)
    assert max(batches) >= 32 * CASE.default_batch
    assert len(batches) > 5


def test_batch_that_a_gpu_could_not_show_in_time_is_left_out(store, recorded):
    batches = tune_with_gpu(store, recorded, 0.02, 0.0152, 300)
    assert max(batches) <= 16 * CASE.default_batch
    assert len(batches) > 3


def test_slow_start_of_a_use_case_costs_no_plan_its_trial(store, recorded):
    recorded.start_s = 11.0
    outcome = Search(store, recorded, replace(REQUEST, budget_s=600)).tune()
    assert Outcome.TIME_LIMIT not in {result.outcome for result in outcome.trials}
    assert outcome.plan.plan.threads == 2
