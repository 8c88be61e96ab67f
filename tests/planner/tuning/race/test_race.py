"""Plans that take turns: their warm-up, their order, and what loader processes read ahead."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest

from launch.plan import Plan
from planner.trials.contender import TrialFailedError
from planner.trials.result import Outcome, Role
from planner.tuning.race import Race
from probes.disturbance import Disturbance
from tests.planner.tuning.race.scripted_race import PLAN, Scripted, entered, race_of


def test_every_other_round_goes_backwards():
    log = []
    race, entrants = entered(*(Scripted(name, [2.0], log) for name in "abc"))
    log.clear()
    race.run_round(entrants)
    race.run_round(entrants)
    assert [name for name, _ in log] in (list("abccba"), list("cbaabc"))
    for _ in range(2):
        log.clear()
        race.go_forwards()
        race.run_round(entrants)
        assert [name for name, _ in log] == list("abc")


def test_first_slow_steps_are_warm_up_and_decide_nothing():
    race, (entrant,) = entered(Scripted("a", [9.0, 5.0, 3.0, 2.9, 2.9]))
    race.run_round([entrant])
    known = entrant.measurement()
    assert known.warmup_s == (9.0, 5.0, 3.0, 2.9)
    assert known.samples_s == (2.9,)


def test_long_step_is_a_turn_by_itself_and_short_ones_share_one():
    log = []
    race, entrants = entered(Scripted("long", [4.0], log), Scripted("short", [0.01], log))
    log.clear()
    race.run_round(entrants)
    assert dict(log) == {"long": 1, "short": 25}


def test_first_step_after_a_switch_does_not_count_in_a_turn_of_many():
    times = [0.01] * 2 + [0.5] + [0.01] * 24 + [0.01]
    race, (entrant,) = entered(Scripted("a", times))
    race.run_round([entrant])
    assert entrant.measurement().samples_s == (pytest.approx(0.01),)


def test_rounds_after_starts_do_not_count_while_a_plan_is_slower_than_it_was():
    """The defaults' first turns of a final took up to twice as long, and made ours look better."""
    slow = Scripted("a", [1.0, 1.0, 2.3, 1.4, 1.1, 1.0])
    race, entrants = entered(slow, Scripted("b", [3.0]), role=Role.FINAL)
    race.run_first_round(entrants)
    assert [list(entrant.turns_s.values()) for entrant in entrants] == [[1.1], [3.0]]
    assert entrants[0].warmup_s == [1.0, 1.0, 2.3, 1.4]
    assert entrants[0].spent_s == pytest.approx(6.8)


def test_what_slows_all_plans_alike_or_one_that_is_only_compared_with_leaves_the_first_round():
    plans = [("a", [1.0, 1.0, 1.4]), ("b", [3.0, 3.0, 4.0]), ("c", [1.0, 1.0, 5.0])]
    race = race_of(*(Scripted(name, times) for name, times in plans))
    roles = (Role.FINAL, Role.DEFAULTS, Role.BASELINE)
    entrants = [race.enter(PLAN, role, time_limit_s=99) for role in roles]
    race.run_first_round(entrants)
    assert [list(entrant.turns_s.values()) for entrant in entrants] == [[1.4], [4.0], [5.0]]


def test_first_rounds_do_not_count_as_long_as_there_is_time_for_others():
    for left_s, steps in ((9.0, 1), (11.0, 5)):  # two more rounds take 10 s
        log = []
        plans = (Scripted("a", [1.0, 1.0, 2.0], log), Scripted("b", [3.0], log))
        race, entrants = entered(*plans, role=Role.FINAL)
        log.clear()
        race.run_first_round(entrants, until=time.monotonic() + left_s, least=2)
        assert log == [("a", 1), ("b", 1)] * steps
        assert list(entrants[0].turns_s.values()) == [2.0]


def test_turn_takes_the_time_of_its_steps_where_these_count_by_the_worth_of_their_samples():
    """The story: rounds of a search by time to a loss were taken to last as long as the search sees
    them, and finals ended though there was time for more of them."""
    race = Race(lambda _plan: Scripted("a", [4.0]), worth=lambda batch: 5 / batch)
    entrant = race.enter(PLAN, Role.SEARCH, time_limit_s=99)
    race.run_round([entrant])
    assert (entrant.step_s, entrant.steps_of_turn(), entrant.turn_s) == (4.0, 1, 2.0)


def test_what_loader_processes_read_before_the_turns_does_not_count():
    """Four batches lay ready and were used up: eight steps were made, and four were loaded."""
    plan = Plan(strategy="sequential", node_batch=10, loader_workers=2)
    ahead = [0, 4, 4, 4, 4, 4, *[4, 3, 2, 1], *[1, 0, 0, 0]]
    race, (entrant,) = entered(Scripted("a", [0.25], read_ahead=ahead), plan=plan)
    assert len(entrant.warmup_s) == 6
    for _ in range(4):
        race.run_round([entrant])
    assert entrant.measurement().samples_s == (0.5,) * 4


def test_turn_of_a_plan_that_waits_for_its_input_is_longer_than_its_queue():
    log = []
    plan = Plan(strategy="sequential", node_batch=10, loader_workers=4)
    race, (entrant,) = entered(Scripted("a", [1.0], log, input_s=[0.5]), plan=plan)
    log.clear()
    race.run_round([entrant])
    assert log == [("a", 9)]
    assert entrant.measurement().input_share == pytest.approx(0.5)


def test_share_of_waiting_for_input_is_of_the_rounds_that_count():
    """The story: first rounds that the times leave out were in it."""
    waiting = Scripted("a", [1.0, 1.0, 2.0, 1.0], input_s=[0.0, 0.0, 1.5, 0.1])
    race, entrants = entered(waiting, Scripted("b", [3.0]), role=Role.FINAL)
    race.run_first_round(entrants)
    known = entrants[0].measurement()
    assert known.samples_s == (1.0,)
    assert known.input_share == pytest.approx(0.1)


def test_plan_that_fails_in_its_turn_leaves_with_its_reason_and_the_others_go_on():
    bad, good = Scripted("bad", [1.0, 1.0, None]), Scripted("good", [1.0])
    race, entrants = entered(bad, good)
    for _ in range(2):
        race.run_round(entrants)
    failed, ended = (entrant.result() for entrant in entrants)
    assert (failed.outcome, failed.reason, bad.is_closed) == (Outcome.CRASH, "scripted", True)
    assert (ended.outcome, len(ended.measurement.samples_s)) == (Outcome.OK, 2)


def test_plan_started_afresh_keeps_the_turns_that_it_had():
    first, second = Scripted("a", [2.0]), Scripted("a", [3.0])
    race = race_of(first, second)
    entrant = race.enter(PLAN, Role.FINAL, time_limit_s=99)
    race.run_round([entrant])
    race.restart(entrant, time_limit_s=99)
    race.run_round([entrant])
    assert first.is_closed
    assert entrant.measurement().samples_s == (2.0, 3.0)
    assert entrant.measurement().rounds == (1, 2)


@pytest.mark.parametrize(("starts_bytes", "most_bytes"), [((9, 7), 9), ((None, None), None)])
def test_memory_of_a_gpu_is_the_most_of_all_starts(starts_bytes, most_bytes):
    starts = [Scripted("a", [2.0]) for _ in starts_bytes]
    for start, gpu_bytes in zip(starts, starts_bytes, strict=True):
        start.gpu_bytes = gpu_bytes
    race = race_of(*starts)
    entrant = race.enter(PLAN, Role.FINAL, time_limit_s=99)
    race.restart(entrant, time_limit_s=99)
    race.run_round([entrant])
    assert entrant.result().peak_device_memory_bytes == most_bytes


class Stuck(Scripted):
    """Makes no step in whatever time it is given."""

    def make_steps(self, count, *, time_limit_s):
        raise TrialFailedError(Outcome.TIME_LIMIT, "stuck")


@pytest.mark.parametrize(("until", "outcome"), [(0.0, Outcome.OK), (math.inf, Outcome.TIME_LIMIT)])
def test_plan_whose_next_start_has_no_time_keeps_its_turns_and_only_those_count(until, outcome):
    """The story: a final's second start was cut short by its end, and the plan was said to have got
    stuck; what it had shown was thrown away."""
    race = race_of(Scripted("a", [2.0]), Stuck("a", []))
    entrant = race.enter(PLAN, Role.FINAL, time_limit_s=99)
    race.run_round([entrant])
    race.restart(entrant, time_limit_s=99, until=until)
    assert entrant.result().outcome is outcome
    assert (entrant.measurement().samples_s, entrant.measurement().starts) == ((2.0,), 1)


def test_plan_whose_first_turn_has_no_time_has_not_got_stuck():
    waiting = [Scripted("a", [2.0]), Scripted("b", [2.0]), Stuck("a", [])]
    race = Race(lambda _plan: waiting.pop(0), fits=lambda plans: len(plans) < 2)
    first, _ = (race.enter(PLAN, Role.FINAL, time_limit_s=99) for _ in range(2))
    race.run_round([first], until=0.0)
    assert first.result().outcome is Outcome.NO_TIME


def test_plan_that_had_no_time_to_get_warm_has_its_turns_after_another_start():
    """The story: memory was too small for plans side by side, the time of its turn was asked for
    before its next start, and the search ended with a division by zero."""
    race = race_of(Stuck("a", []), Scripted("a", [2.0]))
    entrant = race.enter(PLAN, Role.FINAL, time_limit_s=1)
    entrant.excuse()
    assert entrant.has_not_failed
    assert entrant.turn_s == 0.0
    race.restart(entrant, time_limit_s=99)
    assert entrant.turn_s == 2.0
    race.run_round([entrant])
    assert entrant.result().outcome is Outcome.OK


class Disturbed(Scripted):
    """Makes steps of a second; in some turns others use the cores, and it takes twice as long."""

    def __init__(self, others):
        super().__init__("a", [1.0])
        self._others = iter(others)

    def make_steps(self, count, *, time_limit_s):
        steps = super().make_steps(count, time_limit_s=time_limit_s)
        others = next(self._others, 0.0)
        self.disturbance = Disturbance(others_cores=others)
        return [replace(step, time_s=1.0 + others) for step in steps]


def disturbed_entrants(*others_of_turns):
    """Give a race on one core, and plans that are warm; what others use in each of their turns."""
    warm = (0.0, 0.0)  # a step, then another
    return entered(*(Disturbed((*warm, *others)) for others in others_of_turns))


def test_turn_that_others_disturbed_is_taken_again_and_does_not_count():
    race, (one, other) = disturbed_entrants([0.0, 1.0, 0.0, 0.0], [0.0] * 9)
    for _ in range(3):
        race.run_round([one, other])
    assert one.measurement().samples_s == other.measurement().samples_s == (1.0,) * 3
    assert one.measurement().rounds == other.measurement().rounds
    (turn,) = one.measurement().disturbed
    assert turn.was_repeated
    assert one.measurement().slowed_rounds() == {}
    assert turn.disturbance.others_cores == 1.0
    assert other.measurement().disturbed == ()


def test_disturbed_turn_of_a_plan_that_is_only_compared_with_is_taken_again():
    """Of its three turns none is left out, so that a disturbed one makes its ratio uncertain."""
    race, (one, rare) = disturbed_entrants([0.0] * 9, [1.0, 0.0])
    rare.role = Role.BASELINE
    race.run_first_round([one, rare])
    assert one.measurement().rounds == rare.measurement().rounds
    assert one.measurement().samples_s == rare.measurement().samples_s == (1.0,)


def test_turn_that_is_disturbed_again_and_again_counts_at_last():
    race, (entrant,) = disturbed_entrants([1.0, 1.0, 1.0, 0.0])
    race.run_round([entrant])
    assert entrant.measurement().samples_s == (2.0,)
    assert [turn.was_repeated for turn in entrant.measurement().disturbed] == [True, True, False]


def test_steps_of_a_turn_that_was_taken_again_do_not_count_where_its_round_does_not():
    """The story: what was read ahead was then held against more steps than had used it up."""
    race, (entrant,) = disturbed_entrants([1.0, 0.0])
    race.run_round([entrant])
    (number,) = entrant.turns_s
    assert entrant.steps == 2
    entrant.count_as_warmup(number)
    assert entrant.steps == 0


def test_what_disturbs_all_the_time_is_waited_for_no_longer():
    race, (entrant,) = disturbed_entrants([1.0] * 99)
    for _ in range(12):
        race.run_round([entrant])
    assert len(entrant.turns_s) == 12
    assert sum(turn.was_repeated for turn in entrant.disturbed) <= 8


def test_turn_is_not_taken_again_where_the_others_of_its_round_would_have_no_time():
    race, entrants = disturbed_entrants([1.0, 0.0], [0.0])
    race.run_round(entrants, until=2.5)  # its turn takes 2 s, and the other's 1 s
    assert [entrant.measurement().samples_s for entrant in entrants] == [(2.0,), (1.0,)]


def test_turn_is_not_taken_again_when_its_time_is_up():
    race, (entrant,) = disturbed_entrants([1.0, 0.0])
    race.run_round([entrant], until=0.0)
    assert entrant.measurement().samples_s == (2.0,)


def test_plan_that_fails_while_its_turn_is_taken_again_keeps_the_disturbed_one():
    failing = Disturbed([0.0, 0.0, 1.0])
    failing._times_s = [1.0, 1.0, 1.0, None]
    race, (entrant,) = entered(failing)
    race.run_round([entrant])
    assert entrant.failure is not None
    assert list(entrant.turns_s.values()) == [2.0]
