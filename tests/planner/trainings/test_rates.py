"""The rate of a training has an interval that its own stretches show, or says that they do not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from training_samples import EPOCH, TRAINING, usage_of

from planner.trainings.rates import training_rate


def test_rate_is_the_median_of_stretches_without_the_warm_up():
    rates = [5.0] * 6 + [20.0, 20.2, 19.8, 20.0, 20.4] * 8
    found = training_rate(TRAINING, {"vm": usage_of(samples_per_s=rates)})
    assert found.median == pytest.approx(20.1, abs=0.1)
    assert 19.5 < found.low <= found.median <= found.high < 20.7
    assert found.count >= 5


def test_a_training_of_a_few_seconds_shows_nothing_of_its_spread():
    found = training_rate(TRAINING, {"vm": usage_of(samples_per_s=[20.0, 20.0, 20.0])})
    assert (found.low, found.median, found.high) == (10.0, 20.0, 40.0)


def test_epochs_take_the_place_of_stretches_where_no_use_is_stored():
    assert training_rate(TRAINING, {}).median == EPOCH.throughput_samples_per_s


def test_a_training_without_a_step_has_no_rate():
    nothing = replace(TRAINING, epochs_done=())
    assert training_rate(nothing, {"vm": usage_of()}) is None
