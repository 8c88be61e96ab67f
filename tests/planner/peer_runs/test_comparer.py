"""The comparer keeps what each start of a peer gave, however it ends."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from launch.workload import Workload
from planner.errors import TrainingFailedError
from planner.peer_runs.comparer import Comparer
from planner.peer_runs.processes import PeerFailedError
from planner.peer_runs.request import CompareRequest, Setting
from planner.peers._base import PeerSetup
from planner.peers._reports import PeerBegun, PeerStepDone

SETUP = PeerSetup(
    workload=Workload(use_case="simplebig"),
    addresses=("127.0.0.1",),
    node_batch=32,
    processes=1,
    folder=Path("peer"),
    ports=(20000,),
)
REQUEST = CompareRequest(
    workload=SETUP.workload,
    peers=("plain",),
    settings=(Setting.DEFAULTS,),
    budget_s=0.0,
    turn_s=1.0,
)
STEP = PeerStepDone(time_s=1e-9, samples=32, loss=1.0)
"""Shorter than any turn, of which only whole steps count: so a turn has as many as it may."""

WARM_UP, TURN = 3, 1000


class Ours:
    """A training of ours that makes a step in a second, by its own account."""

    start_s = 4.0
    is_generated = False

    def make_steps(self, count):
        return [replace(STEP, time_s=1.0)] * count


class Steps:
    """Processes of a peer that fail after so many steps."""

    def __init__(self, count):
        self._reports = [PeerBegun(processes=1, threads=1)]
        self._reports += [STEP] * count

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def next_report(self, timeout_s):
        if not self._reports:
            raise PeerFailedError("it died")
        return self._reports.pop(0)

    def stop(self):
        return []

    def proceed(self):
        pass


class Launcher:
    """Starts a peer that makes so many steps at each start."""

    def __init__(self, *counts):
        self._counts = list(counts)

    def make_setup(self, peer, setting):
        return SETUP

    def start(self, peer, setup):
        return Steps(self._counts.pop(0))


@contextmanager
def start_ours():
    yield Ours()


def measured(*counts):
    request = replace(REQUEST, starts=len(counts))
    found = Comparer(request, start_ours, Launcher(*counts), lambda report: None).run()
    return found.results[0]


def test_a_start_that_fails_as_it_warms_up_does_not_narrow_the_interval():
    """It counted as a start, and what starts differ by was divided by it."""
    once, failed = measured(WARM_UP + 2 * TURN), measured(WARM_UP + 2 * TURN, WARM_UP - 1)
    assert failed.reason == "it died"
    assert len(failed.start_s) == len(once.start_s) == 1
    assert failed.ratio.high / failed.ratio.low == once.ratio.high / once.ratio.low


def test_rounds_before_a_failure_are_kept():
    failed = measured(WARM_UP + 2 * TURN, WARM_UP + TURN)
    assert failed.reason == "it died"
    assert len(failed.rounds) == 3
    assert len(failed.start_s) == 2


class FailsAfter(Ours):
    """A training of ours that fails after so many turns, its warm-up one of them."""

    def __init__(self, turns):
        self._turns = turns

    def make_steps(self, count):
        self._turns -= 1
        if self._turns < 0:
            raise TrainingFailedError("our own plan: out of memory")
        return super().make_steps(count)


def compare_with_ours(*trainings):
    """Compare with trainings of ours, one for each start; ``None`` does not start."""
    left = list(trainings)

    @contextmanager
    def start():
        ours = left.pop(0)
        if ours is None:
            raise TrainingFailedError("our own plan: out of memory")
        yield ours

    request = replace(REQUEST, starts=len(left))
    launcher = Launcher(*[WARM_UP + 2 * TURN] * len(left))
    return Comparer(request, start, launcher, lambda report: None).run()


@pytest.mark.parametrize(("rounds", "second"), [(2, None), (3, FailsAfter(2))])
def test_what_was_measured_before_our_own_training_failed_is_kept(rounds, second):
    """One failed start of ours, or a failed turn, threw away all rounds before it."""
    found = compare_with_ours(Ours(), second)
    assert len(found.results[0].rounds) == rounds
    assert str(found.failure) == "our own plan: out of memory"
    assert not found.interrupted


def test_our_own_training_that_fails_before_the_first_round_is_an_error():
    with pytest.raises(TrainingFailedError, match="out of memory"):
        compare_with_ours(FailsAfter(1))
