"""Plans side by side in memory that is too small for all of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from launch.plan import Plan
from planner.trials.contender import TrialFailedError
from planner.trials.result import Outcome, Role
from tests.planner.tuning.recorded_search import (
    CASE,
    NODE,
    REQUEST,
    Recorded,
    RecordedContender,
    Search,
)

LIMIT = NODE.memory.usable_bytes


class SmallMemory(Recorded):
    """A machine whose kernel ends the largest plan when all together are too large."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[KillableContender] = []
        self.killed: list[Plan] = []
        self.most_bytes = 0

    def need_bytes(self, plan: Plan) -> int:
        return self.peak_bytes

    def start(self, plan: Plan) -> RecordedContender:
        super().start(plan)
        role = self.ran[-1][0] if self.ran else Role.SEARCH
        contender = KillableContender(self, plan, role)
        self.open.append(contender)
        used = sum(one.peak_memory_bytes for one in self.open)
        while used > LIMIT:
            # Of those that are equally large the one that has run for longest.
            victim = max(self.open, key=lambda one: one.peak_memory_bytes)
            victim.is_killed = True
            self.killed.append(victim.plan)
            self.open.remove(victim)
            used -= victim.peak_memory_bytes
        self.most_bytes = max(self.most_bytes, used)
        return contender


class KillableContender(RecordedContender):
    """Is found to be killed when it is to make steps."""

    def __init__(self, machine: SmallMemory, plan: Plan, role: Role) -> None:
        super().__init__(machine, plan, role)
        self.plan, self._machine, self.is_killed = plan, machine, False
        self.peak_memory_bytes = machine.need_bytes(plan)

    def make_steps(self, count: int, *, time_limit_s: float):
        if self.is_killed:
            raise TrialFailedError(Outcome.OUT_OF_MEMORY, "ended by the kernel")
        return super().make_steps(count, time_limit_s=time_limit_s)

    def close(self) -> None:
        if self in self._machine.open:
            self._machine.open.remove(self)


@pytest.fixture
def machine() -> SmallMemory:
    return SmallMemory()


def test_plan_that_is_too_large_by_itself_costs_the_others_nothing_but_its_time(
    store, machine, usual
):
    """The story: 20 plans became 15, for each turn after it was a start, and it took 35 s more."""
    machine.need_bytes = lambda plan: 2 * LIMIT if plan.allocator == "retain" else 10**8
    outcome = Search(store, machine).tune()
    assert machine.killed
    assert {r.outcome for r in outcome.trials if r.plan.allocator == "retain"} == {
        Outcome.OUT_OF_MEMORY
    }
    # 51 and 34, where all plans have memory enough: each that lacks it starts twice.
    assert machine.starts < 2 * usual.recorded.starts
    assert machine.now_s <= 182


def test_search_whose_plans_do_not_fit_at_once_ends_within_its_budget(store, machine):
    machine.start_s, machine.peak_bytes = 4.0, int(0.6 * LIMIT)
    outcome = Search(store, machine).tune()
    assert machine.now_s <= 190
    assert Outcome.OUT_OF_MEMORY not in {result.outcome for result in outcome.trials}
    assert outcome.plan.speedup.median > 1.1


def test_final_in_which_each_turn_is_a_start_has_its_time_set_aside(store, machine):
    """The story: whether turns are starts was asked without the plan's own memory, so that a second
    plan was tried in the time of the final, and the best one had no speedup."""
    machine.start_s, machine.peak_bytes = 4.0, int(0.6 * LIMIT)
    asked = replace(REQUEST, budget_s=120, strategies=("threads",))
    outcome = Search(store, machine, asked).tune()
    assert Role.FINAL in finals(machine)
    assert outcome.plan.speedup is not None
    assert machine.now_s <= 120


@pytest.mark.parametrize(("start_s", "budget_s"), [(14.0, 100), (8.0, 110), (14.0, 170)])
def test_no_time_is_set_aside_where_there_is_none_for_a_final(store, machine, start_s, budget_s):
    """The story: what was set aside was too short for a final, and the turns beside the defaults
    that it was taken from were missing: the plan had no speedup, and time was left."""
    machine.start_s, machine.peak_bytes = start_s, int(0.6 * LIMIT)
    asked = replace(REQUEST, budget_s=budget_s, strategies=("threads",))
    assert Search(store, machine, asked).tune().plan.speedup is not None


def test_first_plan_is_not_tried_where_its_turns_are_starts_and_have_no_time(store, machine):
    """The story: no plan led yet, so that it was judged as if it were alone."""
    machine.start_s, machine.peak_bytes = 14.0, int(0.6 * LIMIT)
    Search(store, machine, replace(REQUEST, budget_s=80, strategies=("threads",))).tune()
    assert {role for role, _ in machine.ran} == {Role.DEFAULTS}


def finals(machine: SmallMemory) -> list[Role]:
    final = (Role.FINAL, Role.DEFAULTS, Role.OWN_BATCH, Role.BASELINE, Role.SHARE)
    return [role for role, _ in machine.ran[1:] if role in final]


def test_final_lets_no_more_plans_run_side_by_side_than_memory_holds(store, machine):
    """The story: five plans of a third of the memory each were open, and the best was ended."""
    machine.peak_bytes = int(0.35 * LIMIT)
    outcome = Search(store, machine).tune()
    assert machine.killed == []
    assert machine.most_bytes <= 0.8 * LIMIT
    assert Outcome.OUT_OF_MEMORY not in {result.outcome for result in outcome.trials}
    assert outcome.plan.speedup.median > 1.1
    assert machine.now_s <= 190


def test_final_leaves_out_what_is_only_compared_with_before_its_turns_are_starts(store, machine):
    machine.peak_bytes = int(0.2 * LIMIT)  # four at once
    outcome = Search(store, machine).tune()
    assert machine.most_bytes <= 0.8 * LIMIT
    assert len(finals(machine)) <= 4
    assert finals(machine).count(Role.FINAL) >= 2
    assert Role.BASELINE not in finals(machine)
    assert machine.starts == len(machine.ran) + len(finals(machine))  # each twice
    assert outcome.plan.speedup.median > 1.1


def test_final_that_proves_too_large_for_memory_keeps_its_budget(store):
    """The story: that each turn is a start was seen after the first; it took 299 s of 240."""
    machine = SmallMemory()
    usual_s = machine.sample_s
    machine.start_s, machine.sample_s = 1.5, lambda plan: 3.2 * usual_s(plan)
    machine.need_bytes = lambda plan: int(
        (0.04 + 0.016 * plan.node_batch / plan.micro_batches) * LIMIT
    )
    asked = replace(REQUEST, budget_s=240)
    outcome = Search(store, machine, asked, replace(CASE, sample_s=0.065)).tune()
    assert machine.now_s <= 1.08 * 240
    assert outcome.plan.speedup.median > 1.1


def test_plan_that_grows_in_its_next_start_is_not_ended_for_those_started_after_it(store, machine):
    """The story: it was found to fit only alone, and yet the next plan was started beside it."""
    starts: Counter[Plan] = Counter()

    def need_bytes(plan: Plan) -> int:
        starts[plan] += any(role is Role.FINAL for role, _ in machine.ran)
        grown = (0.7 if plan == machine.ran[0][1] else 0.4) if starts[plan] > 1 else 0.01
        return int(grown * LIMIT)

    machine.need_bytes = need_bytes
    outcome = Search(store, machine).tune()
    assert machine.killed == [machine.ran[0][1]]  # the defaults, which come after the best plan
    assert Outcome.OUT_OF_MEMORY not in {result.outcome for result in outcome.trials}
    assert machine.now_s <= 190


def test_plan_whose_next_turn_has_no_time_keeps_what_it_has_shown(store):
    """The story: turns were starts, the last of them came too late, and no plan was left."""
    machine = SmallMemory()
    usual_s = machine.sample_s
    machine.start_s, machine.sample_s = 5.0, lambda plan: 48 * usual_s(plan)
    machine.need_bytes = lambda plan: int((0.7 if plan.node_batch >= 16 else 0.1) * LIMIT)
    asked = replace(REQUEST, budget_s=300)
    case = replace(CASE, sample_s=1.0, default_batch=16)
    outcome = Search(store, machine, asked, case).tune()
    assert outcome.plan.plan.node_batch == 16


def test_run_on_one_core_that_was_asked_for_is_not_left_out_for_memory(store, machine):
    machine.peak_bytes = int(0.35 * LIMIT)
    Search(store, machine, replace(REQUEST, with_baseline=True)).tune()
    assert Role.BASELINE in finals(machine)
    assert machine.killed == []


def test_whole_batch_waits_until_it_fits_beside_plans_with_a_part_of_it(store):
    """The story: it was let in by the small peaks of the plans that ran, and all were ended."""
    machine = SmallMemory()
    usual_s = machine.sample_s
    machine.sample_s = lambda plan: 3.2 * usual_s(plan)
    machine.need_bytes = lambda plan: int(
        (0.04 + 0.016 * plan.node_batch / plan.micro_batches) * LIMIT
    )
    asked = replace(REQUEST, budget_s=300, max_batch=32, strategies=("threads", "processes"))
    search = Search(store, machine, asked, replace(CASE, sample_s=0.065))
    search.tune()
    assert any(role is Role.SEARCH and plan.node_batch >= 32 for role, plan in machine.ran)
    assert machine.killed == []
