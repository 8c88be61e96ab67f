"""Final of a search: what it tries, and what it leaves out first where time is short."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from imagined_machines import node_of

from launch.plan import Plan
from planner.trials.contender import TrialFailedError
from planner.trials.result import Outcome, Role
from planner.tuning.entrant import Entrant
from planner.tuning.final import Final, _finals
from tests.planner.tuning.recorded_search import REQUEST, Recorded, RecordedContender, Search


def test_what_is_only_compared_with_is_left_out_before_a_finalist():
    """The story: the second finalist had to go for a small batch of the first one.

    The plan with the own batch goes last, after the second start.
    """
    roles = (Role.OWN_BATCH, Role.BASELINE, Role.SHARE)
    rare = [(Plan(strategy="sequential", node_batch=n), role) for n, role in enumerate(roles, 1)]
    finals = _finals([range(2, 0, -1)], rare, needed=0, preferred=1)
    tried = [(starts, len(compared), finalists) for starts, compared, finalists in finals]
    twice = [(2, 3, 2), (2, 2, 2), (2, 1, 2), (2, 3, 1), (2, 2, 1), (2, 1, 1)]
    once = [(1, compared, finalists) for _, compared, finalists in twice]
    assert tried == [*twice, *once, (2, 0, 2), (2, 0, 1), (1, 0, 2), (1, 0, 1)]


class SlowUpdate(Recorded):
    """A machine whose update takes as long as 8 samples: larger batches gain."""

    def sample_s(self, plan: Plan) -> float:
        return super().sample_s(plan) * (1 + 8 / plan.node_batch)


def test_final_tries_what_is_expected_to_be_faster_than_all_that_were_tried(store):
    """Large batches are chosen by what steps with smaller ones have shown, if time is short."""
    recorded = SlowUpdate()
    Search(store, recorded, replace(REQUEST, budget_s=120), node=node_of(4)).tune()
    tried = {plan for role, plan in recorded.ran if role is Role.SEARCH}
    finalists = [plan for role, plan in recorded.ran if role is Role.FINAL]
    (untried,) = set(finalists) - tried
    assert recorded.sample_s(untried) < min(map(recorded.sample_s, tried))


def test_second_start_is_for_plans_that_may_be_the_best(store):
    recorded = SlowUpdate()
    outcome = Search(store, recorded, replace(REQUEST, budget_s=120), node=node_of(4)).tune()
    raced = [r for r in outcome.trials if r.role in (Role.FINAL, Role.DEFAULTS)]
    starts = {result.plan: result.measurement.starts for result in raced}
    assert starts[outcome.plan.plan] == starts[outcome.defaults.plan] == 2
    behind = [
        plan
        for plan in starts
        if recorded.sample_s(plan) > 1.03 * min(recorded.sample_s(other) for other in starts)
        and plan != outcome.defaults.plan
    ]
    assert behind
    assert {starts[plan] for plan in behind} == {1}


def test_finalist_behind_one_that_failed_has_its_second_start():
    """The story: the best plan of a final crashed, and what was left of it was started once."""
    recorded = Recorded()
    entrants = []
    for batch in (16, 32, 64):
        plan = Plan(strategy="sequential", node_batch=batch)
        contender = RecordedContender(recorded, plan, Role.FINAL)
        entrants.append(Entrant(plan=plan, role=Role.FINAL, contender=contender))
    trials = SimpleNamespace(
        times=None, is_behind=lambda one, other: one.plan.node_batch > other.plan.node_batch
    )
    final = Final(SimpleNamespace(request=REQUEST), trials, recorded.clock)
    best, second, third = entrants
    behind = final._find_behind(entrants)
    assert second in behind
    assert third in behind
    best.failure = TrialFailedError(Outcome.CRASH, "crash")
    assert final._find_behind(entrants) == [third]
