import math
import random

import pytest

from probes.errors import InvalidMeasurementError
from probes.timing import Measurement, paired_ratio


def noisy(count: int, seed: int = 0, centre: float = 1.0) -> Measurement:
    rng = random.Random(seed)
    return Measurement(samples_s=tuple(rng.gauss(centre, 0.03 * centre) for _ in range(count)))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_time_that_is_no_positive_number_is_refused(bad):
    with pytest.raises(InvalidMeasurementError, match="positive"):
        Measurement(samples_s=(bad,))


# Intervals


def test_measurement_without_a_sample_is_refused():
    with pytest.raises(InvalidMeasurementError, match="at least one"):
        Measurement(warmup_s=(1.0,), samples_s=())


def test_total_includes_warmup():
    assert Measurement(warmup_s=(2.0,), samples_s=(1.0, 1.0)).total_s == 4.0


@pytest.mark.parametrize("count", [3, 4, 5])
def test_interval_of_few_samples_is_wider_than_their_range(count):
    measurement = noisy(count)
    interval = measurement.interval_s()
    assert interval.low < min(measurement.samples_s)
    assert interval.high > max(measurement.samples_s)


@pytest.mark.parametrize("count", [3, 5, 6, 7, 10, 20, 50, 250])
def test_interval_holds_the_true_median_19_times_in_20(count):
    inside = 0
    for seed in range(1000):
        interval = noisy(count, seed).interval_s()
        inside += interval.low <= 1.0 <= interval.high
    assert 930 <= inside <= 990


@pytest.mark.parametrize("count", [1, 2, 3, 6, 100, 1000])
def test_interval_is_positive_and_holds_the_median(count):
    interval = Measurement(samples_s=(*[1.0] * (count - 1), 1000.0)).interval_s()
    assert 0 < interval.low <= interval.median <= interval.high
    assert interval.count == count


def test_interval_of_equal_samples_is_a_point():
    interval = Measurement(samples_s=(0.5,) * 20).interval_s()
    assert (interval.low, interval.median, interval.high) == (0.5, 0.5, 0.5)


def test_interval_does_not_depend_on_the_order_of_samples():
    measurement = noisy(40)
    assert measurement.interval_s() == noisy(40).interval_s()
    backwards = Measurement(samples_s=measurement.samples_s[::-1])
    assert backwards.interval_s() == measurement.interval_s()


# Ratios


def test_drift_that_hits_both_halves_of_a_pair_cancels_out():
    drift = [1.0, 1.5, 2.0, 3.0]
    result = paired_ratio([(2.0 * d, 1.0 * d) for d in drift])
    assert (result.low, result.median, result.high) == pytest.approx((2.0, 2.0, 2.0))
    assert result.count == 4


def test_paired_ratio_is_a_geometric_mean_with_students_interval():
    result = paired_ratio([(2.0, 1.0), (8.0, 1.0)])
    assert result.median == pytest.approx(4.0)
    # logs differ from their mean by ln 2; t = 12.706 at one degree of freedom
    assert result.high == pytest.approx(4.0 * 2.0**12.706)


def test_single_pair_is_unsure_by_a_factor_of_two():
    result = paired_ratio([(3.0, 1.0)])
    assert (result.low, result.median, result.high) == pytest.approx((1.5, 3.0, 6.0))


def test_no_pair_is_refused():
    with pytest.raises(InvalidMeasurementError, match="at least one pair"):
        paired_ratio([])
