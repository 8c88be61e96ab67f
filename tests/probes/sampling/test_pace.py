"""The pace of work that is repeated."""

from __future__ import annotations

import math

import pytest

from probes.sampling.pace import Pace
from tests.hand_clock import HandClock


def test_work_is_due_at_once_and_then_after_its_interval():
    clock, cost = HandClock(), HandClock()
    pace = Pace(2.0, 0.001, clock=clock, cost_clock=cost)
    assert pace.is_due
    with pace.working():
        pass
    clock.now_s += 1.9
    assert not pace.is_due
    clock.now_s += 0.1
    assert pace.is_due


@pytest.mark.parametrize(("part", "most_s", "cost_s"), [(0.001, math.inf, 0.01), (0.01, 10.0, 3.0)])
def test_what_costs_much_comes_seldom_up_to_the_longest_interval(part, most_s, cost_s):
    clock, cost = HandClock(), HandClock()
    pace = Pace(1.0, part, most_s=most_s, clock=clock, cost_clock=cost)
    with pace.working():
        cost.now_s += cost_s
    clock.now_s += 9.9
    assert not pace.is_due
    clock.now_s += 0.2
    assert pace.is_due
