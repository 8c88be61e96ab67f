"""Searches that go on where others stopped, and nodes whose plan is known."""

from __future__ import annotations

import math
import random
import signal
from dataclasses import replace

import pytest

from launch.plan import Plan
from launch.reports import Noted, Report
from planner.errors import NoPlanError
from planner.trials.reports import TrialProgress
from planner.trials.result import Outcome, Role, TrialResult
from planner.tuning.conclusion import conclude
from planner.tuning.findings import Findings
from probes.timing import Measurement
from tests.planner.tuning.recorded_search import DEFAULTS, NODE, REQUEST, Recorded, Search

OTHER_NODE = replace(NODE, node="n2")


def test_plan_is_known_though_ctrl_c_comes_as_its_trial_is_stored(store, recorded, monkeypatch):
    """The story: the database had a plan that the search ended without."""
    add_trial = type(store.studies).add_trial

    def add_and_interrupt(studies, study_id, result):
        added = add_trial(studies, study_id, result)
        signal.raise_signal(signal.SIGINT)
        return added

    monkeypatch.setattr(type(store.studies), "add_trial", add_and_interrupt)
    outcome = Search(store, recorded).tune()
    assert outcome.interrupted
    kept = [trial.result.plan for trial in store.studies.all_trials()]
    assert kept == [trial.plan for trial in outcome.trials]


@pytest.mark.parametrize("role", [Role.DEFAULTS, Role.SEARCH])
def test_trial_is_stored_though_ctrl_c_comes_just_before(store, recorded, monkeypatch, role):
    """The story: it counted as stored already, or was not among the running ones any more."""
    add, left = Findings.add, []

    def interrupt_and_add(findings, result):
        if result.role is role and not left:
            left.append((role, result.plan))
            signal.raise_signal(signal.SIGINT)
        return add(findings, result)

    monkeypatch.setattr(Findings, "add", interrupt_and_add)
    assert Search(store, recorded).tune().interrupted
    kept = [(trial.result.role, trial.result.plan) for trial in store.studies.all_trials()]
    assert kept.count(left[0]) == 1


def test_final_that_is_interrupted_before_each_plan_had_its_turns_decides_nothing(store):
    """The story: the finalist whose second turn came first was stored, and without a speedup."""
    asked = replace(REQUEST, trials=3, fresh=True)
    best = Search(store, Recorded(), asked).tune().plan.plan
    for turns in (4, 5):  # of eight in that round
        recorded = Recorded()
        stop_in_second_round_of_final(recorded, turns)
        outcome = Search(store, recorded, asked).tune()
        assert outcome.interrupted
        assert (outcome.plan.plan, outcome.plan.speedup is not None) == (best, True)


def stop_in_second_round_of_final(recorded: Recorded, turns: int) -> None:
    """Let Ctrl-C come after some turns of it."""
    listen, made = recorded.listen, []

    def listen_and_stop(report: Report) -> None:
        listen(report)
        if recorded.final_rounds and isinstance(report, TrialProgress):
            made.append(report)
            if len(made) == turns:
                raise KeyboardInterrupt

    recorded.listen = listen_and_stop


def test_search_that_is_interrupted_in_its_first_trial_says_that_it_starts_again(store, recorded):
    said = []
    recorded.listen = lambda report, _host=None: said.append(report)
    recorded.stop_after = -1
    with pytest.raises(KeyboardInterrupt):
        Search(store, recorded).tune()
    assert Noted(message="nothing was measured yet: the same command starts again") in said


def test_interrupted_search_keeps_what_had_its_turns_and_goes_on_where_it_stopped(store, recorded):
    recorded.stop_after = 4
    assert Search(store, recorded).tune().interrupted
    kept = [trial.result.plan for trial in store.studies.all_trials()]
    assert len(kept) >= 2
    assert set(kept) <= {plan for _, plan in recorded.ran}
    recorded.stop_after = None
    spent_s = recorded.now_s
    Search(store, recorded).tune()

    assert recorded.now_s <= 182
    assert recorded.now_s > spent_s
    searched = [plan for role, plan in recorded.ran if role is Role.SEARCH]
    assert len(set(searched)) >= 5  # the best until then race again, and what had no turns


def test_search_that_goes_on_at_its_end_has_its_best_plan_so_far_in_the_final(store, recorded):
    """The story: PyTorch's defaults, which had raced against nothing, took its place, and there was
    no final."""
    asked = replace(REQUEST, trials=0)
    best = replace(DEFAULTS, memory_format="channels_last", allocator="retain")
    before = Search(store, Recorded(), asked).findings
    timed = Measurement(samples_s=(best.node_batch * recorded.sample_s(best),) * 4)
    made = TrialResult(
        plan=best, role=Role.SEARCH, outcome=Outcome.OK, measurement=timed, elapsed_s=3.0
    )
    before.add(made)
    larger = replace(best, node_batch=64)
    before.add(replace(made, plan=larger, outcome=Outcome.CRASH, measurement=None, elapsed_s=141.0))
    found = Search(store, recorded, asked).tune().plan
    ran = [(role, plan) for role, plan in recorded.ran if role in (Role.SEARCH, Role.FINAL)]
    assert ran == [(Role.FINAL, best)]
    assert found.plan == best
    assert found.speedup is not None


def test_known_node_confirms_its_plan_in_three_trials_and_says_how_to_search_on(store):
    """The story: what the first trials showed, at the machine's level of that day, put all that was
    stored in doubt, and 20 more plans were tried."""
    asked = replace(REQUEST, budget_s=300, strategies=("threads",))
    for seed in (510, 511):
        recorded, generator = Recorded(), random.Random(seed)
        usual_s, slowness = recorded.sample_s, 1.3 if seed == 511 else 1.0
        recorded.sample_s = lambda plan, usual_s=usual_s, by=slowness: by * usual_s(plan)
        recorded.drift = lambda now_s, of=generator: math.exp(of.gauss(0, 0.05))
        search = Search(store, recorded, asked)
        search.tune()
    ran = [role for role, _ in recorded.ran]
    assert 1 <= ran.count(Role.SEARCH) <= 2  # beside the defaults
    assert Role.FINAL in ran
    assert search.notes == [
        "no untried plan is expected to gain more than 1 %: the best plans so far are confirmed, "
        "and --fresh searches anew"
    ]


def test_node_whose_known_plans_have_failed_since_is_searched_again(store, recorded):
    """The story: a search that was stopped because all plans failed let none be left to confirm,
    and each one after it ended with an IndexError."""
    asked = replace(REQUEST, trials=1, strategies=("sequential",))
    Search(store, recorded, asked).tune()
    stopped = Search(store, recorded, asked).findings
    assert stopped.has_finished_with_a_plan()
    for plan in [one.plan for one in stopped.candidates()]:
        failed = TrialResult(plan=plan, role=Role.SEARCH, outcome=Outcome.CRASH, elapsed_s=1.0)
        stopped.add(failed)
    assert not Search(store, recorded, asked).findings.has_finished_with_a_plan()


def test_finished_search_goes_on_with_a_new_budget_though_its_plan_was_removed(
    usual, usual_store, recorded
):
    """The end of a search was told by the date of its plan: without it, there was no budget."""
    usual_store.plans.remove(usual.outcome.plan.id)
    outcome = Search(usual_store, recorded).tune()
    assert recorded.now_s > 100
    assert len(outcome.trials) > outcome.new_trials > 5


def test_search_that_found_no_plan_is_finished_too(store, recorded):
    recorded.fail = lambda plan: Outcome.CRASH
    for _ in range(2):
        with pytest.raises(NoPlanError, match=r"no trial of \d+ succeeded, .*crash"):
            Search(store, recorded, replace(REQUEST, trials=2)).tune()
    assert [role for role, _ in recorded.ran].count(Role.SEARCH) == 4


def test_each_search_is_compared_with_defaults_of_its_own(usual, usual_store, recorded):
    first = usual.outcome.plan
    quiet_s = recorded.sample_s
    recorded.sample_s = lambda plan: 1.5 * quiet_s(plan)  # another program has come
    second = Search(usual_store, recorded, replace(REQUEST, trials=3)).tune().plan
    before, after = (found.baseline.throughput_samples_per_s for found in (first, second))
    assert after == pytest.approx(before / 1.5, rel=0.02)
    assert second.speedup.median == pytest.approx(first.speedup.median, rel=0.05)


def test_node_with_equal_hardware_confirms_a_plan_in_few_trials(usual, usual_store, recorded):
    best = usual.outcome.plan.plan
    other = Search(usual_store, recorded, node=OTHER_NODE)
    other.tuner.measure_defaults()
    other.tuner.confirm([best])
    outcome = conclude(other.findings, usual_store.plans)
    tried = [plan for role, plan in recorded.ran if role is Role.FINAL]
    assert tried == [best]
    assert not [role for role, _ in recorded.ran if role is Role.SEARCH]
    assert (outcome.plan.node, outcome.plan.plan, outcome.warnings) == ("n2", best, ())
    assert outcome.plan.speedup.median > 1


def test_plan_that_fails_on_the_other_node_yields_to_the_next(store, recorded):
    first, second = (
        Plan(strategy="threads", node_batch=batch, threads_per_process=2) for batch in (64, 128)
    )
    recorded.fail = lambda plan: Outcome.OUT_OF_MEMORY if plan == first else None
    other = Search(store, recorded, node=OTHER_NODE)
    other.tuner.measure_defaults()
    other.tuner.confirm([first, second])
    assert conclude(other.findings, store.plans).plan.plan == second
