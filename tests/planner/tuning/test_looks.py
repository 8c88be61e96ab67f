"""Looks: where steps take long, plans are tried with a part of the batch they are chosen with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from launch.errors import InvalidPlanError
from launch.strategies import strategy_names
from launch.strategies._settings import cpu_settings
from planner.store import Store
from planner.trials.reports import RoundEnded, TrialEnded
from planner.trials.result import Outcome, Role
from planner.tuning.looks import find_look_batch
from planner.tuning.tune_request import check_budget, least_batch
from tests.planner.tuning import recorded_search
from tests.planner.tuning.recorded_search import CASE, GPU, NODE, Recorded, Search, Searched

SLOW = replace(CASE, sample_s=0.065)
TWO_MINUTES = replace(recorded_search.REQUEST, budget_s=120)
VERY_SLOW = replace(CASE, sample_s=1.0, default_batch=16)
ON_GPU = replace(NODE, gpus=(GPU,))
HIDDEN = replace(NODE, gpus=(replace(GPU, cuda_index=None),))
OF_CPUS = ("processes", "threads")


class SlowMachine(Recorded):
    """Two cores that train 20 samples a second by PyTorch's defaults, and 10 on one."""

    start_s = 1.5

    def sample_s(self, plan):
        return 3.2 * super().sample_s(plan)


class VerySlowMachine(SlowMachine):
    """A machine whose steps of 16 samples take 13 s, as VGG16's on two cores."""

    start_s = 5.0

    def sample_s(self, plan):
        return 15 * super().sample_s(plan)


@pytest.fixture
def recorded() -> SlowMachine:
    return SlowMachine()


@pytest.fixture(scope="module")
def looked(memory_folder) -> Searched:
    """A search of two minutes on the slow machine."""
    return Searched.of(memory_folder / "looked.db", SlowMachine(), TWO_MINUTES, SLOW)


@pytest.fixture
def looked_store(looked, new_folder) -> Iterator[Store]:
    """What that search has stored, to go on from."""
    with looked.open_copy(new_folder) as store:
        yield store


def test_a_slow_machine_compares_twelve_plans_in_two_minutes(looked):
    assert len({plan for _, plan in looked.recorded.ran}) >= 12
    best = looked.outcome.plan
    assert best.plan.memory_format == "channels_last"
    assert best.plan.allocator == "retain" or best.speedup.low > 1.1
    assert looked.recorded.now_s < 130


def test_plans_are_looked_at_first_where_the_defaults_are_of_no_wanted_strategy(store, recorded):
    """The story: whole batches came first, one of them led, and no look could be held to it."""
    asked = replace(TWO_MINUTES, strategies=("processes",))
    Search(store, recorded, asked, SLOW).tune()
    assert [role for role, _ in recorded.ran].count(Role.LOOK) >= 6


def with_fast_gpu(recorded):
    """Give a recorded machine a GPU on which a sample takes next to nothing."""
    on_cpu = recorded.sample_s
    recorded.sample_s = lambda plan: 1e-4 if plan.gpus else on_cpu(plan)
    return recorded


@pytest.mark.parametrize(
    ("node", "strategies"), [(HIDDEN, tuple(strategy_names())), (ON_GPU, OF_CPUS)]
)
def test_a_gpu_that_no_plan_may_use_is_no_reason_to_try_fewer_plans(
    store, recorded, node, strategies
):
    """The story: with CUDA_VISIBLE_DEVICES="", or strategies of CPUs alone, such a machine had no
    looks, and two plans at a time."""
    asked = replace(TWO_MINUTES, strategies=strategies)
    search = Search(store, with_fast_gpu(recorded), asked, SLOW, node)
    outcome = search.tune()
    assert [role for role, _ in recorded.ran].count(Role.LOOK) >= 6
    rounds = [report.standings for report in search.told if isinstance(report, RoundEnded)]
    assert max(sum(one.plan.node_batch == 8 for one in standings) for standings in rounds) > 2
    assert outcome.plan.plan.devices == ("cpu",)
    assert outcome.plan.plan.node_batch >= 32
    assert bool(outcome.defaults.plan.gpus) is (node is ON_GPU)  # what speedups refer to


def test_where_a_plan_may_use_a_gpu_nothing_is_looked_at(store, recorded):
    asked = replace(TWO_MINUTES, strategies=("sequential", "threads"))
    assert Search(store, recorded, asked, SLOW, ON_GPU).findings.look_batch is None


def test_a_gpu_that_no_plan_may_use_sets_no_limit_to_plans_on_cpus(store):
    """The story: each had as long to get warm as if it were as fast as PyTorch's defaults there."""
    asked = replace(TWO_MINUTES, budget_s=300, strategies=("threads",))
    machine = with_fast_gpu(VerySlowMachine())
    outcome = Search(store, machine, asked, VERY_SLOW, ON_GPU).tune()
    assert Outcome.TIME_LIMIT not in {result.outcome for result in outcome.trials}
    assert outcome.plan.plan.strategy == "threads"


def test_beside_a_fast_gpu_no_plan_on_cpus_is_tried_that_cannot_show_its_steps(store):
    """The story: it was expected to take as long as the GPU, and a fifth of the budget was lost."""
    asked = replace(TWO_MINUTES, strategies=("sequential", "threads"))
    machine = with_fast_gpu(VerySlowMachine())
    outcome = Search(store, machine, asked, VERY_SLOW, ON_GPU).tune()
    assert Outcome.TIME_LIMIT not in {result.outcome for result in outcome.trials}
    assert outcome.plan.plan.gpus


def test_only_whole_batches_are_chosen_and_compared_with(looked):
    recorded, outcome = looked.recorded, looked.outcome
    assert min(plan.node_batch for _, plan in recorded.ran) == 8
    assert outcome.plan.plan.node_batch >= 32
    assert outcome.defaults.plan.node_batch == 32
    finals = [plan for role, plan in recorded.ran if role in (Role.FINAL, Role.DEFAULTS)]
    assert finals
    assert all(plan.node_batch >= 32 for plan in finals)
    assert all(c.plan.node_batch >= 32 for c in outcome.plan.comparisons)


@pytest.mark.parametrize("budget_s", [90, 180, 240])
def test_looks_are_not_faster_than_the_whole_batch_for_being_small(store, recorded, budget_s):
    """A small batch costs more by sample here: a look must not drive out whole batches."""
    outcome = Search(store, recorded, replace(TWO_MINUTES, budget_s=budget_s), SLOW).tune()
    whole = [plan for _, plan in recorded.ran if plan.node_batch >= 32]
    chosen_s = recorded.sample_s(outcome.plan.plan)
    doubled = 1.031  # what the next larger batch gains, which a final may not come to show
    assert chosen_s <= doubled * min(map(recorded.sample_s, whole))


@pytest.mark.parametrize("budget_s", [180, 220])
def test_a_larger_batch_is_never_chosen_without_what_it_gains(store, recorded, budget_s):
    """It was left out first where time was short, or the second finalist proved to be the best.

    The final had time for one start of such plans, which was set aside as if their batch was small.
    """
    # Stages wait for nothing on this machine, so that a pipeline needs no larger batch.
    request = replace(TWO_MINUTES, budget_s=budget_s, strategies=("processes", "threads"))
    outcome = Search(store, recorded, request, SLOW).tune()
    assert outcome.plan.plan.node_batch > 32
    assert outcome.own_batch_unknown is None
    best = [t for t in outcome.trials if t.role is Role.FINAL and t.plan == outcome.plan.plan]
    assert [result.measurement.starts for result in best] == [2]


def test_interrupted_looks_are_no_plan_and_the_next_search_goes_on_from_them(store, recorded):
    recorded.stop_after = 9
    with pytest.raises(KeyboardInterrupt):
        Search(store, recorded, TWO_MINUTES, SLOW).tune()
    again = SlowMachine()
    search = Search(store, again, TWO_MINUTES, SLOW)
    stored = {result.plan for result in search.findings.results}
    assert len(stored) >= 4
    outcome = search.tune()
    assert outcome.plan.plan.node_batch >= 32
    first, *others = [plan for role, plan in again.ran if role is Role.LOOK]
    assert first in stored  # what the others are held against
    assert others
    assert not set(others) & stored


def test_search_that_was_interrupted_after_a_whole_batch_still_ends_with_a_comparison(store):
    """The plan tried whole made the node a known one, where the next search was at its end."""
    long = replace(TWO_MINUTES, budget_s=900)
    recorded = VerySlowMachine()
    recorded.stop_after = 11
    search = Search(store, recorded, long, VERY_SLOW)
    assert search.tuner.search()
    assert search.findings.candidates()
    again = VerySlowMachine()
    outcome = Search(store, again, long, VERY_SLOW).tune()
    assert any(role is Role.LOOK for role, _ in again.ran)
    assert outcome.plan.speedup.median > 1.1


def test_looks_serve_a_later_search_for_their_own_batch(looked_store, recorded):
    """They counted as tried, and were no plans that may be chosen: the best ones were lost."""
    small = replace(TWO_MINUTES, batch_size=8)
    later = Search(looked_store, SlowMachine(), small, SLOW).tune().plan.plan
    fresh = Search(looked_store, SlowMachine(), replace(small, fresh=True), SLOW).tune().plan.plan
    assert later.node_batch == 8
    assert recorded.sample_s(later) <= 1.02 * recorded.sample_s(fresh)


@pytest.mark.parametrize("batch_choices", [(32, 64), (256,)])
def test_the_batch_of_looks_changes_no_first_guess(batch_choices):
    case = replace(SLOW, batch_choices=batch_choices)
    plain, looked = cpu_settings(case, NODE), cpu_settings(replace(case, look_batch=8), NODE)
    assert list(looked["node_batch"].values) == [8, *batch_choices]
    assert {name: choices.first for name, choices in looked.items()} == {
        name: choices.first for name, choices in plain.items()
    }
    assert looked["micro_batches"] == plain["micro_batches"]


@pytest.mark.parametrize(
    ("case", "machine", "request_"),
    [
        (SLOW, SlowMachine, replace(TWO_MINUTES, budget_s=300, batch_size=256)),
        (VERY_SLOW, VerySlowMachine, replace(TWO_MINUTES, budget_s=224)),
        (VERY_SLOW, VerySlowMachine, replace(TWO_MINUTES, budget_s=240)),
    ],
)
def test_what_the_budget_check_lets_through_ends_in_time_with_a_comparison(
    store, case, machine, request_
):
    check_budget(request_, case, NODE)
    recorded = machine()
    outcome = Search(store, recorded, request_, case).tune()
    assert outcome.plan.speedup is not None
    assert recorded.now_s <= 1.05 * request_.budget_s
    finals = [plan for role, plan in recorded.ran if role in (Role.FINAL, Role.DEFAULTS)]
    assert len(set(finals)) >= 2  # the defaults alone show nothing


@pytest.mark.parametrize("budget_s", [60, 100, 220])
def test_budget_that_holds_no_comparison_after_looks_is_refused_with_one_that_does(budget_s):
    with pytest.raises(InvalidPlanError, match=r"steps of 16 samples .* use --budget 5m"):
        check_budget(replace(TWO_MINUTES, budget_s=budget_s), VERY_SLOW, NODE)


def test_budget_that_searches_nothing_needs_no_time_for_looks():
    check_budget(replace(TWO_MINUTES, budget_s=100, trials=0), VERY_SLOW, NODE)


def test_run_on_one_core_that_is_wanted_is_dropped_after_the_second_finalist(store, recorded):
    asked = replace(TWO_MINUTES, budget_s=65, with_baseline=True, strategies=("threads",))
    outcome = Search(store, recorded, asked, SLOW).tune()
    assert [role for role, _ in recorded.ran].count(Role.FINAL) == 1  # there is time for no more
    assert "one_core" in {compared.name for compared in outcome.plan.comparisons}


def test_batch_normalisation_is_not_cut_smaller_than_what_was_asked_for(store, recorded):
    case = replace(SLOW, has_batch_norm=True)
    Search(store, recorded, TWO_MINUTES, case).tune()
    tried = {plan.micro_batches for role, plan in recorded.ran if role is Role.LOOK}
    finals = {plan.micro_batches for role, plan in recorded.ran if role is Role.FINAL}
    assert finals <= tried


def test_a_known_node_is_confirmed_with_whole_batches(looked, looked_store, recorded):
    Search(looked_store, recorded, replace(TWO_MINUTES, trials=1), SLOW).tune()
    assert all(plan.node_batch >= 32 for role, plan in recorded.ran if role is not Role.SHARE)
    assert looked.outcome.plan.plan in [plan for _, plan in recorded.ran]


@pytest.mark.parametrize(
    ("first", "later", "is_known"),
    [
        (("threads",), tuple(strategy_names()), False),
        (("processes",), ("threads", "processes"), False),  # PyTorch's defaults have threads
        (("threads",), ("threads", "gpu_data"), True),  # there is no GPU
        (("processes", "sequential"), ("processes",), True),
    ],
)
def test_a_node_is_known_of_the_strategies_that_were_searched(
    store, recorded, first, later, is_known
):
    """The story: a search of one strategy let the next one, of all, skip its looks."""
    few = replace(TWO_MINUTES, trials=2)
    Search(store, recorded, replace(few, strategies=first), SLOW).tune()
    again = SlowMachine()
    Search(store, again, replace(few, strategies=later), SLOW).tune()
    assert (Role.LOOK not in {role for role, _ in again.ran}) is is_known


def test_a_later_search_tries_whole_what_was_only_looked_at(looked, looked_store, recorded):
    first = {plan for _, plan in looked.recorded.ran if plan.node_batch >= 32}
    search = Search(looked_store, recorded, replace(TWO_MINUTES, budget_s=300), SLOW)
    outcome = search.tune()
    new = [p for role, p in recorded.ran if role is Role.SEARCH and p not in first]
    assert len(new) >= 2
    assert all(plan.node_batch >= 32 for plan in new)
    fastest = min(search.findings.candidates(), key=lambda c: recorded.sample_s(c.plan))
    assert recorded.sample_s(outcome.plan.plan) <= 1.02 * recorded.sample_s(fastest.plan)


@pytest.mark.parametrize(
    ("case", "request_", "expected"),
    [
        (SLOW, TWO_MINUTES, 8),
        (replace(SLOW, sample_s=1.0, default_batch=16), TWO_MINUTES, 2),  # one for each core
        (replace(SLOW, sample_s=0.06), TWO_MINUTES, 16),
        (replace(SLOW, sample_s=0.03), TWO_MINUTES, None),  # a second is short
        (replace(SLOW, sample_s=0.0), TWO_MINUTES, None),  # a script: its batches are its user's
        (SLOW, replace(TWO_MINUTES, batch_size=64), 8),
        (SLOW, replace(TWO_MINUTES, batch_size=4), None),
        (SLOW, replace(TWO_MINUTES, max_batch=16), 8),
        (SLOW, replace(TWO_MINUTES, objective="time-to-loss"), None),
    ],
)
def test_the_batch_of_a_look_follows_from_the_time_of_a_step(case, request_, expected):
    own = least_batch(case, request_)
    assert find_look_batch(case, own, NODE.cpu.usable_cores) == expected
    assert expected is None or expected < own


def test_time_in_training_steps_is_no_more_than_all_time(looked):
    """A plan that is kept before it leaves was counted twice: a search had 112 % in its steps."""
    all_s = looked.recorded.now_s
    assert 0.5 * all_s < looked.outcome.stepping_s < all_s


def test_reported_trials_have_the_numbers_and_the_rates_of_the_stored_ones(looked, looked_store):
    ended = [report for report in looked.search.told if isinstance(report, TrialEnded)]
    stored = looked_store.studies.trials(looked.search.findings.study_id)
    assert [(one.number, one.result) for one in ended] == [
        (one.number, one.result) for one in stored
    ]
