"""The search of the best plan: what is tried, measured again and compared, on recorded times."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from launch.plan import Plan
from launch.reports import StepDone
from planner.errors import NoPlanError
from planner.trials.contender import TrialFailedError
from planner.trials.result import Outcome, Role
from probes.disturbance import Disturbance
from tests.planner.tuning.recorded_search import (
    CASE,
    DEFAULTS,
    REQUEST,
    Recorded,
    RecordedContender,
    Search,
)

FEW = replace(REQUEST, trials=4)
"""For what is so however many plans are tried: to propose one takes most of the time here."""


def test_defaults_come_first_and_are_plain(usual):
    assert usual.recorded.ran[0] == (Role.DEFAULTS, DEFAULTS)


def test_best_plan_is_compared_with_defaults_one_core_and_its_own_settings_at_the_usual_batch(
    usual,
):
    found, recorded = usual.outcome.plan, usual.recorded
    compared = {one.name: one for one in found.comparisons}
    assert compared["defaults"].plan == DEFAULTS
    assert compared["one_core"].plan == Plan(strategy="sequential", node_batch=32)
    assert compared["own_batch"].plan == replace(found.plan, node_batch=32)
    for one in compared.values():
        truth = recorded.sample_s(one.plan) / recorded.sample_s(found.plan)
        assert one.speedup.low <= truth <= one.speedup.high
        assert one.speedup.median == pytest.approx(truth, rel=0.01)
    assert found.speedup == compared["defaults"].speedup


def test_gain_of_the_settings_is_known_apart_from_that_of_the_batch(usual):
    """Of the two, what the larger batch gains alone was a figure."""
    compared = {one.name: one.plan for one in usual.outcome.plan.comparisons}
    own, defaults = compared["own_batch"], compared["defaults"]
    assert own.node_batch == defaults.node_batch < usual.outcome.plan.plan.node_batch
    gain = usual.outcome.settings_gain
    truth = usual.recorded.sample_s(defaults) / usual.recorded.sample_s(own)
    assert gain.low <= truth <= gain.high
    assert gain.median == pytest.approx(truth, rel=0.01)


def test_missing_comparison_at_the_own_batch_has_its_reason(store, recorded, usual):
    """The line was left out without a word."""
    assert (usual.outcome.own_batch_unknown, usual.outcome.one_core_unknown) == (None, None)
    recorded.fail = lambda _: Outcome.CRASH if recorded.ran[-1][0] is Role.OWN_BATCH else None
    found = Search(store, recorded).tune()
    assert "own_batch" not in {one.name for one in found.plan.comparisons}
    assert found.own_batch_unknown == "its trial failed: crash"
    assert found.settings_gain is None


def test_search_ends_where_all_plans_crash_for_one_reason(store, recorded):
    """The story: a use case that failed in every step was tried 407 times."""
    recorded.fail = lambda _: Outcome.CRASH
    with pytest.raises(NoPlanError, match=r"no trial of 12 succeeded, the last one: crash"):
        Search(store, recorded).tune()


def test_search_goes_on_where_plans_fail_in_more_than_one_way(store, recorded):
    ways = [Outcome.CRASH, Outcome.NAN_LOSS]
    recorded.fail = lambda _: ways[len(recorded.ran) % 2] if len(recorded.ran) < 20 else None
    assert Search(store, recorded).tune().plan.speedup.median > 1


def test_machine_that_slows_down_meanwhile_changes_no_comparison(store, recorded, usual):
    steady = usual.outcome.plan
    recorded.drift = lambda now_s: 1 + 0.3 * math.sin(now_s / 40)
    found = Search(store, recorded).tune().plan
    truth = [recorded.sample_s(plan) for plan in (found.plan, steady.plan)]
    assert truth[0] == pytest.approx(truth[1], rel=0.02)
    assert found.speedup.median == pytest.approx(steady.speedup.median, rel=0.03)
    rate, known = found.throughput_samples_per_s, steady.throughput_samples_per_s
    assert rate.high / rate.low > 1.3 > known.high / known.low


def test_search_ends_within_its_budget(usual):
    assert 150 < usual.recorded.now_s <= 182


def test_disturbed_turns_of_the_defaults_are_repeated_within_the_budget(store, recorded):
    """On a busy machine they were repeated however little time there was."""
    recorded.sample_s = lambda plan: 0.3
    recorded.disturbance = Disturbance(others_cores=1.0)
    Search(store, recorded, replace(REQUEST, budget_s=60)).tune()
    assert 45 < recorded.now_s <= 60


def test_best_plan_found_is_near_the_best_there_is(usual):
    best = replace(DEFAULTS, node_batch=256, memory_format="channels_last", allocator="retain")
    possible_s = usual.recorded.sample_s(best)
    assert 1 / usual.outcome.plan.throughput_samples_per_s.median < 1.02 * possible_s


@pytest.mark.parametrize(
    ("every", "lasts_s", "longer"), [(7, 0.5, 3.0), (11, 0.5, 3.0), (13, 0.9, 5.0)]
)
def test_steps_that_now_and_then_take_far_longer_hide_no_best_plan(
    store, recorded, every, lasts_s, longer
):
    """The story: one such turn of the best plan made a slower one the leader, and the choice."""
    recorded.drift = lambda now_s: longer if int(now_s / lasts_s) % every == 0 else 1.0
    outcome = Search(store, recorded, replace(REQUEST, budget_s=60)).tune()
    best_s = min(recorded.sample_s(plan) for _, plan in recorded.ran)
    assert recorded.sample_s(outcome.plan.plan) < 1.02 * best_s


def test_no_plan_is_searched_twice(usual):
    plans = usual.plans(Role.SEARCH)
    assert len(set(plans)) == len(plans) > 5


def test_finalists_are_measured_again(usual):
    assert usual.outcome.plan.plan in usual.plans(Role.FINAL)
    roles = [role for role, _ in usual.recorded.ran]
    # Where time is short the last have no turn, and the speedup is over the defaults.
    assert roles[roles.index(Role.FINAL) + 1] is Role.DEFAULTS


def test_best_plan_is_measured_with_smaller_batches_too(usual, usual_store):
    """What a node takes for a share is measured, not guessed."""
    found, recorded = usual.outcome.plan, usual.recorded
    batch = found.plan.node_batch
    smaller = {batch // 2, batch // 4}
    known = {point.node_batch for point in found.step_time.points}
    assert batch in known
    assert known & smaller
    shares, first = usual.plans(Role.SHARE), usual.plans(Role.FINAL)[0]
    assert shares == [replace(first, node_batch=plan.node_batch) for plan in shares]
    assert {plan.node_batch for plan in shares} <= smaller  # the search has shown the others
    time_s = found.step_time.step_time.at(batch // 3)
    expected = replace(found.plan, node_batch=batch // 3)
    assert time_s == pytest.approx(recorded.sample_s(expected) * (batch // 3), rel=0.01)
    assert usual_store.plans.get(found.id).step_time == found.step_time
    assert found.gradient_bytes == CASE.parameter_bytes
    assert found.begins_early is False  # nothing is said of its optimizer


def test_batch_of_the_best_plan_is_never_one_that_was_measured_for_shares(store, recorded):
    known = recorded.sample_s
    recorded.sample_s = lambda plan: known(plan) * (0.5 if plan.node_batch < 32 else 1.0)
    chosen = [Search(store, recorded, FEW).tune().plan.plan for _ in range(2)]
    assert all(plan.node_batch >= 32 for plan in chosen)


@pytest.mark.parametrize(("with_baseline", "best_factor"), [(False, 1.0), (True, 1.0), (True, 0.7)])
def test_run_on_one_core_is_in_the_final_however_slow_where_it_is_asked_for(
    store, recorded, with_baseline, best_factor
):
    def sample_s(plan):
        return 0.6 / plan.threads * (best_factor if plan.allocator == "retain" else 1.0)

    recorded.sample_s = sample_s
    request = replace(REQUEST, budget_s=400, with_baseline=with_baseline)
    outcome = Search(store, recorded, request).tune()
    roles = {role for role, _ in recorded.ran}
    assert (Role.BASELINE in roles) is with_baseline
    unknown = None if with_baseline else "no time or memory was left for it: raise --budget"
    assert outcome.one_core_unknown == unknown
    if with_baseline:
        (one_core,) = (one for one in outcome.plan.comparisons if one.name == "one_core")
        assert one_core.speedup.median == pytest.approx(2.0 / best_factor, rel=0.02)
    assert recorded.now_s <= 403


def test_plan_that_may_be_as_fast_yields_to_the_simpler_one(store, recorded):
    recorded.sample_s = lambda plan: 0.01
    outcome = Search(store, recorded, FEW).tune()
    assert outcome.plan.plan.processes == 1


def test_search_computes_with_one_thread_where_plans_have_their_turns(store, recorded, monkeypatch):
    """Threads of OpenBLAS spin for a while after each product, on the cores of the next turn."""
    seen = set()

    def start(plan: Plan) -> RecordedContender:
        seen.update(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")
        return Recorded.start(recorded, plan)

    monkeypatch.setattr(recorded, "start", start)
    with threadpool_limits(limits=2, user_api="blas"):
        Search(store, recorded, replace(REQUEST, trials=2)).tune()
    assert seen == {1}


def test_failures_are_kept_and_the_search_goes_on(store, recorded):
    recorded.fail = lambda p: Outcome.OUT_OF_MEMORY if p.strategy == "processes" else None
    outcome = Search(store, recorded, FEW).tune()
    assert outcome.plan.plan.strategy != "processes"
    kept = [result.outcome for result in outcome.trials]
    assert Outcome.OUT_OF_MEMORY in kept


@pytest.mark.parametrize("outcome", [Outcome.OUT_OF_MEMORY, Outcome.CRASH, Outcome.TIME_LIMIT])
def test_plan_that_fails_when_it_is_measured_again_is_not_chosen(store, recorded, outcome):
    recorded.fail_final = lambda plan: outcome
    request = replace(FEW, batch_size=32)  # of larger ones the time ends a start, no failure
    chosen = Search(store, recorded, request).tune().plan.plan
    leading = [
        [one.plan for one in each.standings if one.is_leading] for each in recorded.final_rounds
    ]
    failed = [plan for role, plan in recorded.ran if role is Role.FINAL]
    assert failed
    assert chosen not in failed
    assert {len(plans) for plans in leading} == {1}
    assert not set(failed) & {plan for plans in leading for plan in plans}


def test_defaults_that_fail_after_their_result_was_kept_are_kept_as_failed(store, recorded):
    """The story: they had no turn more than when they were kept, and it was dropped why."""
    start = recorded.start

    def start_once(plan: Plan) -> RecordedContender:
        contender = start(plan)
        make_steps, most = contender.make_steps, 4 if len(recorded.ran) == 1 else math.inf

        def make_some(count: int, *, time_limit_s: float) -> list[StepDone]:
            if contender._made >= most:
                raise TrialFailedError(Outcome.CRASH, "no more")
            return make_steps(count, time_limit_s=time_limit_s)

        contender.make_steps = make_some
        return contender

    recorded.start = start_once
    outcome = Search(store, recorded, replace(REQUEST, trials=3)).tune()
    roles = [trial.role for trial in outcome.trials if trial.reason == "no more"]
    assert roles == [Role.DEFAULTS]
    assert outcome.plan.speedup is not None


def test_finalist_that_fails_does_not_keep_the_others_at_their_rounds(store, recorded):
    """The story: how it compares was never settled, and each start had twenty rounds, not eight."""

    def fail_second(_plan: Plan) -> Outcome | None:
        finalists = [role for role, _ in recorded.ran].count(Role.FINAL)
        return Outcome.CRASH if finalists == 2 else None

    recorded.fail_final = fail_second
    outcome = Search(store, recorded, replace(REQUEST, budget_s=900, trials=3)).tune()
    assert Outcome.CRASH in {result.outcome for result in outcome.trials}
    assert len(recorded.final_rounds) == 16


def test_defaults_are_the_best_plan_where_nothing_beats_them(store, recorded):
    recorded.sample_s = lambda plan: 0.03 if plan == DEFAULTS else 0.05
    outcome = Search(store, recorded, FEW).tune()
    assert outcome.plan.plan == DEFAULTS
    assert outcome.plan.speedup.median == pytest.approx(1.0, rel=0.01)
    assert outcome.one_core_unknown == "no plan was raced again beside PyTorch's defaults"


@pytest.mark.parametrize(
    ("limits", "allowed"), [({"batch_size": 48}, {48}), ({"max_batch": 64}, {32, 64})]
)
def test_batches_stay_within_the_users_limits(store, recorded, limits, allowed):
    outcome = Search(store, recorded, replace(FEW, **limits)).tune()
    assert {plan.node_batch for role, plan in recorded.ran if role is Role.SEARCH} <= allowed
    assert outcome.plan.plan.node_batch in allowed


def test_numerics_are_kept_unless_asked_otherwise(store, recorded, usual):
    assert {plan.precision for _, plan in usual.recorded.ran} == {"fp32"}
    offered = replace(CASE, precisions=("bf16", "bf16_internal"))
    Search(store, recorded, replace(REQUEST, trials=10, precision="bf16"), offered).tune()
    tried = {plan.precision for role, plan in recorded.ran if role is Role.SEARCH}
    assert tried == {"bf16", "bf16_internal"}


def test_same_seed_draws_the_same_plans(store, recorded, usual):
    Search(store, recorded, FEW).tune()
    drawn = [plan for role, plan in recorded.ran if role is Role.SEARCH]
    assert drawn == usual.plans(Role.SEARCH)[:4]


def test_plans_that_do_not_fit_into_memory_at_once_have_their_turns_alone(store, recorded):
    """As on a GPU: what one plan holds is missing to the next."""
    start, running = recorded.start, []

    def start_alone(plan: Plan):
        contender = start(plan)
        if running:
            raise TrialFailedError(Outcome.OUT_OF_MEMORY, "another plan has it")
        running.append(contender)
        contender.close = lambda: running.clear()
        return contender

    recorded.start = start_alone
    outcome = Search(store, recorded, FEW).tune()
    assert {result.outcome for result in outcome.trials} <= {Outcome.OK, Outcome.SLOWER}
    assert len({result.plan for result in outcome.trials}) > 3
    assert outcome.plan.speedup.median > 1.1


def test_plans_that_the_user_does_not_want_drive_out_none_that_is_wanted(store, recorded):
    """PyTorch's defaults were ahead of every plan of the one strategy that was asked for."""
    known = recorded.sample_s
    recorded.sample_s = lambda plan: known(plan) * (1.5 if plan.strategy == "sequential" else 1)
    request = replace(FEW, strategies=("sequential",))
    found = Search(store, recorded, request).tune().plan
    assert {plan.strategy for role, plan in recorded.ran if role is Role.SEARCH} == {"sequential"}
    assert found.plan.strategy == "sequential"
    assert found.speedup.median < 1


def test_defaults_that_are_nearly_the_best_stay_what_others_are_compared_with(store, recorded):
    recorded.sample_s = lambda plan: 0.01 * (1 + 0.001 * plan.processes)
    found = Search(store, recorded, FEW).tune().plan
    assert found.baseline is not None
    assert found.speedup.median == pytest.approx(1.0, rel=0.01)
