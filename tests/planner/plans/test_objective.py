"""What a plan was chosen for: the worth of samples, and the words for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.plans.objective import Objective, describe_objective
from probes.timing import Interval

EARLY = Objective(
    name="time-to-loss",
    noise_scale=0.207,
    noise_low=0.16,
    noise_high=0.25,
    base_batch=32,
    steps=9,
    train_loss=5.32,
)


@pytest.mark.parametrize("scaling", ["none", "linear", "sqrt"])
@pytest.mark.parametrize("batch", [1, 4, 16])
def test_early_scale_does_not_make_a_sample_of_a_small_batch_count_twice(batch, scaling):
    """After nine steps the scale was 0.2: batches of 4 counted as eight times as good."""
    assert 1 <= EARLY.efficiency(batch, scaling) < 2


def test_small_batches_are_held_against_the_upper_end_of_the_scale():
    late = replace(EARLY, noise_scale=96.0, noise_low=60.0, noise_high=288.0)
    assert late.efficiency(8, "none") == pytest.approx((288 + 32) / (288 + 8))
    assert late.efficiency(64, "linear") == pytest.approx((96 + 32) / (96 + 64))


def test_small_scale_is_not_shown_as_nothing():
    assert "noise scale 0.207 samples (0.160 to 0.250) after 9 steps of 32" in describe_objective(
        EARLY
    )


LATE = replace(EARLY, noise_scale=96.0, noise_low=60.0, noise_high=288.0, target_samples=8000.0)
RATE = Interval(median=100.0, low=80.0, high=125.0, count=9)


def test_worth_of_a_sample_is_as_unsure_as_the_scale():
    worth = LATE.efficiency_range(64, "linear")
    ends = [(scale + 32) / (scale + 64) for scale in (60, 96, 288)]
    assert [worth.low, worth.median, worth.high] == pytest.approx(ends)


def test_predicted_time_is_as_unsure_as_rate_and_worth_together():
    alone = LATE.predict_s(32, "none", RATE)  # a sample of the own batch is worth 1
    assert [alone.low, alone.median, alone.high] == pytest.approx([64.0, 80.0, 100.0])
    both, worth = LATE.predict_s(64, "linear", RATE), LATE.efficiency_range(64, "linear")
    assert both.median == pytest.approx(80 / worth.median)
    assert both.low < both.median * min(0.8, worth.median / worth.high)
    assert both.high > both.median * max(1.25, worth.median / worth.low)
    assert both.high < both.median * 1.25 * worth.median / worth.low
