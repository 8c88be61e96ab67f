"""Plans that cannot stand side by side, for memory, a GPU or a port: each turn is a start."""

from __future__ import annotations

from dataclasses import replace

from launch.reports import Noted
from planner.trials.contender import TrialFailedError
from planner.trials.result import Outcome, Role
from planner.tuning.race import Race
from tests.planner.tuning.race.scripted_race import PLAN, Scripted


class Killable(Scripted):
    """Is found to be ended by the kernel when it is to make steps."""

    is_killed = False

    def make_steps(self, count, *, time_limit_s):
        if self.is_killed:
            raise TrialFailedError(Outcome.OUT_OF_MEMORY, "ended by the kernel")
        return super().make_steps(count, time_limit_s=time_limit_s)


def test_plan_that_was_ended_while_it_stood_still_has_its_turn_again_alone():
    """The story: the others were parked just before its turn, so it counted as too large."""
    first, fits = Killable("first", [2.0]), [True]
    contenders = iter([first, *(Scripted(name, [2.0]) for name in ("other", "again", "other"))])
    race = Race(lambda _: next(contenders), fits=lambda _: fits[-1])
    entrants = [race.enter(PLAN, Role.SEARCH, time_limit_s=99) for _ in range(2)]
    first.is_killed = True
    fits.append(False)
    race.run_round(entrants)
    assert [entrant.failure for entrant in entrants] == [None, None]
    assert [len(entrant.turns_s) for entrant in entrants] == [1, 1]


class Crowded(Scripted):
    """Runs out of memory where it and those that are open need more than there is."""

    def __init__(self, name, needs, memory, log):
        super().__init__(name, [2.0], log)
        self.name, self._needs, self._memory = name, needs, memory
        memory.append(self)

    def make_steps(self, count, *, time_limit_s):
        if sum(other._needs for other in self._memory) > 10:
            raise TrialFailedError(Outcome.OUT_OF_MEMORY, "ended by the kernel")
        return super().make_steps(count, time_limit_s=time_limit_s)

    def close(self):
        super().close()
        if self in self._memory:
            self._memory.remove(self)


def crowded_race(**needs):
    """Give a race on a node with 10 bytes of memory, its entrants, and the names of all starts."""
    memory, starts, log = [], [], []

    def start(plan):
        name = plan.options["name"]
        starts.append(name)
        return Crowded(name, needs[name], memory, log)

    race = Race(start)
    return race, [enter(race, name) for name in needs], starts


def enter(race, name):
    return race.enter(replace(PLAN, options={"name": name}), Role.SEARCH, time_limit_s=99)


def test_plan_that_is_too_large_by_itself_leaves_the_turns_of_others_as_they_were():
    """The story: it was tried alone, and then each turn of all others was a start of processes."""
    race, (one, other, large), starts = crowded_race(one=4, other=4, large=11)
    assert large.failure.outcome is Outcome.OUT_OF_MEMORY
    for _ in range(5):
        race.run_round([one, other])
    assert (one.failure, other.failure) == (None, None)
    assert len(one.turns_s) == len(other.turns_s) == 5
    assert starts == ["one", "other", "large", "large", "one", "other"]


def test_plan_that_the_kernel_ends_for_others_is_tried_alone_before_that_is_believed():
    race, (one, other), _ = crowded_race(one=4, other=4)
    other.contender._needs = 7  # it grows, and the next one to ask for memory is ended
    race.run_round([one, other])
    assert (one.failure, other.failure) == (None, None)
    assert len(one.turns_s) == len(other.turns_s) == 1
    assert race.is_apart


def test_plans_that_do_not_fit_when_they_are_started_again_have_their_turns_alone():
    race, (one, other), _ = crowded_race(one=4, other=4)
    one.contender._needs = 7
    race.restart(other, time_limit_s=99)
    assert other.failure is None
    race.run_round([one, other])
    assert len(one.turns_s) == len(other.turns_s) == 1


class Listening(Scripted):
    """Needs a port that one of those that are open has."""

    def __init__(self, holders, log):
        super().__init__("listening", [2.0], log)
        self._holders = holders

    def make_steps(self, count, *, time_limit_s):
        if any(other is not self for other in self._holders):
            raise TrialFailedError(Outcome.CRASH, "address already in use", lacks_port=True)
        self._holders[:] = [self]
        return super().make_steps(count, time_limit_s=time_limit_s)

    def close(self):
        super().close()
        if self in self._holders:
            self._holders.remove(self)


def test_plans_that_need_one_port_take_turns_by_starts_and_that_is_said_once():
    """All trials of a script with a fixed port failed but that of the script as it is."""
    holders, log, heard = [], [], []
    race = Race(lambda _: Listening(holders, log), on_step=heard.append)
    entrants = [race.enter(PLAN, Role.SEARCH, time_limit_s=99) for _ in range(3)]
    assert race.is_apart
    for _ in range(2):
        race.run_round(entrants)
    assert [entrant.failure for entrant in entrants] == [None] * 3
    assert [len(entrant.turns_s) for entrant in entrants] == [2] * 3
    (said,) = [report.message for report in heard if isinstance(report, Noted)]
    assert "need the same port" in said


def test_plan_whose_port_a_stranger_has_leaves_the_turns_of_others_as_they_were():
    holders, log = [], []
    stranger = Listening([], [])
    contenders = iter([Scripted("first", [2.0], log), *(Listening(holders, log) for _ in "12")])
    race = Race(lambda _: next(contenders, Scripted("first", [2.0], log)))
    first = race.enter(PLAN, Role.SEARCH, time_limit_s=99)
    holders.append(stranger)
    other = race.enter(PLAN, Role.SEARCH, time_limit_s=99)
    assert other.failure is not None
    assert not race.is_apart
    race.run_round([first])
    assert (first.failure, len(first.turns_s)) == (None, 1)


def test_plans_that_need_less_of_a_gpu_than_those_that_lacked_it_stay_side_by_side():
    """The story: after one plan that was too large beside the best one, each turn was a start."""
    needs, memory, starts = {"best": 4, "large": 7, "small": 3, "larger": 8}, [], []

    def start(plan):
        starts.append(name := plan.options["name"])
        return Crowded(name, needs[name], memory, [])

    race = Race(start, gpu_bytes=lambda plans: sum(needs[one.options["name"]] for one in plans))
    best, large = enter(race, "best"), enter(race, "large")
    assert race.is_apart
    race.run_round([best, large])
    large.close()
    small = enter(race, "small")
    starts.clear()
    for _ in range(3):
        race.run_round([best, small])
    assert starts == ["best"]
    assert not race.is_apart
    small.close()
    larger = enter(race, "larger")
    assert race.is_apart  # without another failure
    race.run_round([best, larger])
    assert [one.failure for one in (best, large, small, larger)] == [None] * 4
