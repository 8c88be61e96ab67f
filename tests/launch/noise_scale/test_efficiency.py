"""What a sample is worth in a larger batch."""

from __future__ import annotations

import pytest

from launch.noise_scale.efficiency import LR_SCALINGS, efficiency, learning_rate_factor


def test_linear_scaling_has_the_efficiency_of_the_papers():
    assert efficiency(1000.0, 512, 64, "linear") == pytest.approx((1000 + 64) / (1000 + 512))


def test_kept_learning_rate_makes_one_step_of_each_batch():
    assert efficiency(1e9, 512, 64, "none") == pytest.approx(64 / 512)


def test_square_root_is_between_them():
    assert efficiency(1e9, 256, 64, "sqrt") == pytest.approx(0.5)


def test_no_scaling_gets_farther_than_the_noise_allows():
    for scaling in LR_SCALINGS:
        assert efficiency(10.0, 4096, 64, scaling) <= (10 + 64) / (10 + 4096) + 1e-12


@pytest.mark.parametrize("scaling", LR_SCALINGS)
def test_base_batch_is_worth_itself(scaling):
    assert efficiency(123.0, 64, 64, scaling) == 1.0
    assert learning_rate_factor(scaling, 64, 64) == 1.0


def test_learning_rate_goes_with_the_batch():
    factors = [learning_rate_factor(scaling, 256, 64) for scaling in LR_SCALINGS]
    assert factors == [1.0, 4.0, 2.0]
