"""Two contenders take turns: which, in what order, and what counts."""

from __future__ import annotations

import pytest

from planner.peer_runs.turns import take_turns
from planner.peers._reports import PeerStepDone


class Recorded:
    """A training whose steps all take the same time, in no time."""

    def __init__(self, name, order, time_s, **parts):
        self.name, self.order, self.time_s, self.parts = name, order, time_s, parts
        self.asked = []

    def make_steps(self, count):
        self.order.append(self.name)
        self.asked.append(count)
        step = PeerStepDone(time_s=self.time_s, samples=8, loss=1.0, **self.parts)
        return [step] * count


def rounds(number, peer_s=0.5, ours_s=1.0, turn_s=2.0, **parts):
    order = []
    ours, peer = Recorded("ours", order, ours_s), Recorded("peer", order, peer_s, **parts)
    turns = take_turns(ours, peer, budget_s=1e9, turn_s=turn_s)
    found = [next(turns) for _ in range(number)]
    return found, order, ours, peer


def test_every_other_round_goes_backwards():
    _, order, _, _ = rounds(4)
    warm_up, turns = order[:2], order[2:]
    assert warm_up == ["peer", "ours"]
    assert turns == ["ours", "peer", "peer", "ours", "ours", "peer", "peer", "ours"]


def test_turns_last_as_long_as_asked_and_two_steps_at_least():
    _, _, ours, peer = rounds(1, peer_s=0.4, ours_s=30.0, turn_s=2.0)
    assert peer.asked[-1] == 5
    assert ours.asked[-1] == 2


def test_at_least_two_rounds_are_made_whatever_the_budget():
    order = []
    ours, peer = Recorded("ours", order, 1.0), Recorded("peer", order, 1.0)
    assert len(list(take_turns(ours, peer, budget_s=0.0, turn_s=1.0))) == 2


def test_a_turn_adds_up_times_and_samples_and_parts_that_all_steps_have():
    found, *_ = rounds(1, peer_s=0.5, loading_s=0.1, exchange_s=None)
    turn = found[0].peer
    assert turn.samples_per_s == pytest.approx(16.0)
    assert turn.loading_s == pytest.approx(0.4)
    assert turn.exchange_s is None
