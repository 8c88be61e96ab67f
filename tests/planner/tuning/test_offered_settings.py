"""What a use case offers to search: precisions, decoded pictures, compiled code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launch.plan import Plan
from planner.trials.result import Outcome, Role
from tests.planner.tuning.recorded_search import CASE, REQUEST, Recorded, Search

ANY_PRECISION = replace(CASE, precisions=("fp32", "bf16", "bf16_internal"))
THREADS = replace(REQUEST, strategies=("threads",))
"""What is offered is the same with every strategy, and a search of one takes a part of the time."""
AUTO = replace(THREADS, precision="auto", trials=8)


def gain(recorded: Recorded, **factors: float) -> None:
    """Let settings other than the recorded ones change the time too."""
    known = recorded.sample_s

    def sample_s(plan: Plan) -> float:
        return known(plan) * factors.get(plan.precision, 1.0)

    recorded.sample_s = sample_s


def test_best_rounded_plan_is_measured_in_fp32_too(store, recorded):
    gain(recorded, bf16=0.5, bf16_internal=0.8)
    asked = replace(REQUEST, precision="auto", budget_s=240)
    outcome = Search(store, recorded, asked, ANY_PRECISION).tune()
    best = outcome.plan.plan
    assert best.precision == "bf16"
    assert replace(best, precision="fp32") in [plan for _, plan in recorded.ran]
    assert outcome.exact.plan == replace(best, precision="fp32")
    for one in (outcome.plan, outcome.exact):
        (own,) = (other for other in one.comparisons if other.name == "own_batch")
        assert own.plan == replace(one.plan, node_batch=32) != one.plan
    gained = outcome.plan.throughput_samples_per_s.median
    assert gained == pytest.approx(2 * outcome.exact.throughput_samples_per_s.median, rel=0.01)
    assert 200 < recorded.now_s <= 242


def test_best_plan_in_fp32_needs_no_word_of_what_fp32_would_give(store, recorded):
    gain(recorded, bf16=1.5, bf16_internal=1.2)
    outcome = Search(store, recorded, AUTO, ANY_PRECISION).tune()
    assert outcome.plan.plan.precision == "fp32"
    assert outcome.exact is None


def test_fp32_is_measured_again_where_its_trial_was_cut_short(store, recorded):
    """A plan that had clearly lost has no interval that a result could show."""
    gain(recorded, bf16=0.5, bf16_internal=0.8)
    recorded.fail = lambda plan: Outcome.SLOWER if plan.precision == "fp32" else None
    many = replace(AUTO, budget_s=60, trials=None)  # for such trials take no time
    best = Search(store, recorded, many, ANY_PRECISION).tune().plan.plan
    assert (Role.FINAL, replace(best, precision="fp32")) in recorded.ran


def test_pictures_are_kept_unless_the_user_says_otherwise(store, recorded):
    case = replace(CASE, inputs=("files", "cache"))
    few = replace(THREADS, trials=6)
    Search(store, recorded, few, case).tune()
    assert "cache" in {plan.input for _, plan in recorded.ran}
    without = Recorded()
    best = Search(store, without, replace(few, no_cache=True), case).tune().plan.plan
    assert {plan.input for _, plan in without.ran} == {"files"}
    assert best.input == "files"  # though trials of the first search are remembered


def let_samples_take_4_ms_to_come(recorded: Recorded) -> None:
    computing_s = 0.0005

    def sample_s(plan: Plan) -> float:
        coming_s = 0.004 / (plan.processes * max(1, plan.loader_workers))
        return max(coming_s, computing_s) if plan.loader_workers else coming_s + computing_s

    recorded.sample_s = sample_s
    recorded.input_share = lambda plan: 1 - computing_s / sample_s(plan)


def test_more_loading_processes_are_tried_where_the_defaults_wait_for_their_input(store, recorded):
    let_samples_take_4_ms_to_come(recorded)
    best = Search(store, recorded, replace(REQUEST, budget_s=90)).tune().plan.plan
    assert best.processes * best.loader_workers >= 8


@pytest.mark.parametrize(("inputs", "share"), [(("files",), 0.4), (("files", "cache"), 0.9)])
def test_no_more_loading_processes_are_tried_where_nothing_would_wait_for_them(
    store, recorded, inputs, share
):
    recorded.input_share = lambda plan: share
    case = replace(CASE, inputs=inputs)
    Search(store, recorded, replace(REQUEST, budget_s=60), case).tune()
    assert max(plan.loader_workers for _, plan in recorded.ran) <= 2


def test_no_loading_processes_are_tried_where_reading_takes_next_to_nothing(store, recorded):
    """The story: the first plan that was tried beside VGG16's defaults had two, whose warm-up took
    six steps, a sixth of the budget, where reading takes half a hundredth of a step."""
    recorded.input_share = lambda plan: 0.005
    case = replace(CASE, read_s=0.0001, sample_s=0.02)
    Search(store, recorded, replace(REQUEST, budget_s=90), case).tune()
    assert {plan.loader_workers for _, plan in recorded.ran} == {0}


def test_compile_time_is_that_of_the_first_trial_and_charged_over_the_epochs_of_the_training(
    store, recorded
):
    """The story: the finalists' short time was charged, and compiled plans seemed to cost none."""
    known, compiled = recorded.sample_s, set()
    recorded.sample_s = lambda plan: known(plan) * (0.8 if plan.compile else 1.0)

    def compile_s(plan: Plan) -> float | None:
        if not plan.compile:
            return None
        is_cached = plan in compiled
        compiled.add(plan)
        return 2.0 if is_cached else 60.0

    recorded.compile_s = compile_s
    long, compiles = replace(THREADS, epochs=1000, budget_s=500), replace(CASE, can_compile=True)
    outcome = Search(store, recorded, long, compiles).tune()
    kept = {
        trial.result.compile_s for trial in store.studies.all_trials() if trial.result.plan.compile
    }
    assert kept == {60.0, 2.0}
    assert outcome.plan.plan.compile
    assert outcome.compile_s == 60.0
    again = Search(store, recorded, replace(long, epochs=1), compiles).tune()
    assert not again.plan.plan.compile
    assert again.compile_s is None
