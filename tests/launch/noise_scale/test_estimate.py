"""Estimate of the noise, from numbers whose noise is known."""

from __future__ import annotations

import numpy as np
import pytest

from launch.noise_scale.estimate import NoiseEstimate, StepNoise, step_noise

SHARES = (32, 8, 24, 4)
TRUE = 40.0
"""Scale of the gradients below, in samples: more noise than a batch averages out."""

ELEMENTS = 50


def steps_of(shares, count, *, seed=0):
    """Give what steps show whose gradients have the mean 1 / element and a known noise."""
    draw = np.random.default_rng(seed)
    deviation = (TRUE / ELEMENTS) ** 0.5  # so that tr(C) / |G|^2 is TRUE with |G|^2 = 1
    batch = sum(shares)
    deviations = deviation / np.sqrt(shares)
    for _ in range(count):
        noise = draw.standard_normal((len(shares), ELEMENTS)) * deviations[:, None]
        parts = ELEMENTS**-0.5 + noise
        average = np.array(shares) @ parts / batch
        weighted = float(np.array(shares) @ (parts**2).sum(axis=1) / batch)
        square = float((average**2).sum())
        yield step_noise(weighted, square, parts=len(shares), batch=batch)


def estimate_of(shares, count=2000, **settings):
    estimate = NoiseEstimate(**settings)
    for step in steps_of(shares, count):
        estimate.add(step)
    return estimate.value()


@pytest.mark.parametrize("shares", [SHARES, (17,) * 4, (60, 8), (1, 67)])
def test_scale_is_right_however_unequal_the_shares_are(shares):
    found = estimate_of(shares, decay=0.9999)
    assert found.low < TRUE < found.high
    assert found.scale == pytest.approx(TRUE, rel=0.1)
    assert found.square == pytest.approx(1.0, rel=0.1)


def test_interval_of_95_percent_holds_the_truth_that_often():
    held = 0
    for seed in range(200):
        estimate = NoiseEstimate()
        for step in steps_of(SHARES, 100, seed=seed):
            estimate.add(step)
        found = estimate.value()
        held += found.scale is not None and found.low <= TRUE <= found.high
    assert held >= 180


def test_there_is_no_scale_while_the_mean_gradient_may_be_nothing():
    estimate = NoiseEstimate()
    for number in range(50):
        estimate.add(StepNoise(variance=100.0, square=1.0 if number % 2 else -0.9))
    found = estimate.value()
    assert found.scale is None
    assert found.low is found.high is None
    assert found.square > 0


def test_few_measurements_claim_nothing():
    estimate = NoiseEstimate()
    assert estimate.value() is None
    for _ in range(4):
        estimate.add(StepNoise(variance=10.0, square=1.0))
    assert estimate.value().scale is None


def test_latest_steps_count_most():
    estimate = NoiseEstimate(decay=0.9)
    for step in [StepNoise(variance=10.0, square=1.0)] * 50 + [
        StepNoise(variance=90.0, square=1.0)
    ] * 50:
        estimate.add(step)
    assert estimate.value().scale == pytest.approx(90, rel=0.02)


def test_step_of_one_part_or_with_numbers_that_are_not_finite_shows_nothing():
    assert step_noise(2.0, 1.0, parts=1, batch=8) is None
    assert step_noise(float("nan"), 1.0, parts=2, batch=8) is None
    assert step_noise(2.0, float("inf"), parts=2, batch=8) is None
