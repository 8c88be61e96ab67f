"""What a plan was chosen for: the worth of samples, and the words for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.plans.objective import Objective, describe_objective

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
