"""Steps of fewer samples, as the last one of an epoch: what they count as in a race."""

from __future__ import annotations

import pytest

from planner.trials.result import Role
from tests.planner.tuning.race.scripted_race import PLAN, Scripted, entered, race_of


def test_smaller_last_batches_count_with_their_samples_and_their_time():
    """Steps of 10, 10 and 4 samples that each take 2 s: 24 samples in 6 s, which is 4 a second."""
    race, (entrant,) = entered(Scripted("one", [2.0], samples=(10, 10, 4)))
    for _ in range(12):
        race.run_round([entrant])
    assert PLAN.node_batch / entrant.measurement().median_s == pytest.approx(4.0)


@pytest.mark.parametrize("samples", [(10, 10, 4, 10, 10), (10, 10, 10, 10, 4)])
def test_smaller_batches_count_only_once_a_whole_epoch_was_seen(samples):
    """The story: of two turns one or none has the small step, and plans of the same speed were
    60 % slower or 23 % faster."""
    race, (entrant,) = entered(Scripted("one", [2.0], samples=samples))
    for _ in range(4):
        race.run_round([entrant])
    assert entrant.measurement().median_s == pytest.approx(2.0)


def test_a_plan_is_not_ahead_because_it_has_seen_no_smaller_batch_yet():
    race = race_of(*(Scripted(name, [2.0], samples=(10, 10, 10, 4)) for name in "ab"))
    known = race.enter(PLAN, Role.SEARCH, time_limit_s=99)
    for _ in range(8):
        race.run_round([known])
    new = race.enter(PLAN, Role.SEARCH, time_limit_s=99)
    race.run_round([known, new])
    assert known.measurement().median_s == pytest.approx(2.0 * 40 / 34)
    assert new.measurement().median_s == pytest.approx(2.0 * 40 / 34)


def test_steps_that_another_run_of_a_script_warmed_up_with_are_missing_in_an_epoch():
    """Each run has three steps of 10 samples and one of 4; the first two of a run are not seen."""
    runs = Scripted("one", [2.0], samples=(10, 10, 10, 4), unseen=(5, 6, 9, 10))
    race, (entrant,) = entered(runs)
    for _ in range(6):
        race.run_round([entrant])
    assert entrant.small_batch_factor() == 1.0


def test_batches_of_different_sizes_count_with_their_samples():
    race, (entrant,) = entered(Scripted("one", [0.2], samples=(7, 9)))
    for _ in range(4):
        race.run_round([entrant])
    assert PLAN.node_batch / entrant.measurement().median_s == pytest.approx(40.0)
