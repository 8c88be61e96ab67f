import math
import random
import time
from itertools import pairwise

import pytest

from probes.errors import InvalidMeasurementError
from probes.timing import (
    Interval,
    Measurement,
    StepTimes,
    find_noise_warning,
    paired_ratio,
    ratio,
)


def recorded(*times_s: float) -> StepTimes:
    steps = StepTimes()
    for time_s in times_s:
        steps.add(time_s)
    return steps


def noisy(count: int, seed: int = 0, centre: float = 1.0) -> Measurement:
    rng = random.Random(seed)
    return Measurement(samples_s=tuple(rng.gauss(centre, 0.03 * centre) for _ in range(count)))


# Warm-up


def test_first_step_is_never_counted():
    steps = recorded(*[1.0] * 7)
    assert steps.is_warm
    assert steps.measurement().samples_s == (1.0,) * 5
    assert steps.measurement().warmup_s == (1.0,) * 2


def test_run_of_six_steps_is_not_warm_yet():
    assert not recorded(*[1.0] * 6).is_warm


def test_warmup_ends_where_the_steady_window_starts():
    # first | falling           | steady window: its median is 1.0, the one before had 1.01
    falling = (9.0, 5.0, 4.0, 3.0, 2.5)
    steady = (2.0, 1.0, 1.01, 0.99, 1.0)
    steps = recorded(*falling, *steady[:-1])
    assert not steps.is_warm
    steps.add(steady[-1])
    assert steps.measurement() == Measurement(warmup_s=falling, samples_s=steady)


def test_later_steps_count_even_when_they_are_slow():
    steps = recorded(*[1.0] * 7, 50.0)
    assert steps.measurement().samples_s == (*[1.0] * 5, 50.0)


def test_steps_that_get_steadily_faster_stay_in_warmup():
    steps = recorded(*(0.9**i for i in range(30)))
    assert not steps.is_warm
    assert steps.measurement() is None
    assert not steps.is_precise()


def test_unsteady_run_gives_all_but_the_first_step_when_time_is_up():
    forced = recorded(9.0, 2.0, 1.0).measurement(force=True)
    assert forced == Measurement(warmup_s=(9.0,), samples_s=(2.0, 1.0))


def test_single_step_counts_with_a_wide_interval_when_time_is_up():
    forced = recorded(30.0).measurement(force=True)
    assert forced.samples_s == (30.0,)
    assert forced.interval_s() == Interval(median=30.0, low=15.0, high=60.0, count=1)


def test_run_without_a_step_gives_nothing_even_when_forced():
    assert StepTimes().measurement(force=True) is None


def test_force_changes_nothing_for_a_warm_run():
    steps = recorded(*[1.0] * 9)
    assert steps.measurement(force=True) == steps.measurement()


def test_quiet_run_is_precise_as_soon_as_it_is_warm():
    assert recorded(*[1.0] * 7).is_precise()


def test_noisy_run_becomes_precise_with_more_steps():
    rng = random.Random(3)
    steps = recorded(*(rng.gauss(1.0, 0.05) for _ in range(12)))
    assert not steps.is_precise()
    for _ in range(300):
        steps.add(rng.gauss(1.0, 0.05))
    assert steps.is_precise()


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_time_that_is_no_positive_number_is_refused(bad):
    with pytest.raises(InvalidMeasurementError, match="positive"):
        StepTimes().add(bad)
    with pytest.raises(InvalidMeasurementError, match="positive"):
        Measurement(samples_s=(bad,))


# Intervals


def test_measurement_without_a_sample_is_refused():
    with pytest.raises(InvalidMeasurementError, match="at least one"):
        Measurement(warmup_s=(1.0,), samples_s=())


def test_total_includes_warmup():
    assert Measurement(warmup_s=(2.0,), samples_s=(1.0, 1.0)).total_s == 4.0


@pytest.mark.parametrize("count", [1, 2])
def test_one_or_two_samples_have_no_half_width(count):
    assert noisy(count).relative_half_width == math.inf


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


def test_interval_narrows_with_more_samples():
    widths = [noisy(count).relative_half_width for count in (3, 12, 50, 200, 800)]
    assert all(later < earlier for earlier, later in pairwise(widths))


def test_interval_of_equal_samples_is_a_point():
    interval = Measurement(samples_s=(0.5,) * 20).interval_s()
    assert (interval.low, interval.median, interval.high) == (0.5, 0.5, 0.5)


def test_interval_does_not_depend_on_the_order_of_samples():
    measurement = noisy(40)
    assert measurement.interval_s() == noisy(40).interval_s()
    backwards = Measurement(samples_s=measurement.samples_s[::-1])
    assert backwards.interval_s() == measurement.interval_s()


def test_interval_is_quick_enough_to_ask_for_after_each_step():
    measurements = [noisy(count) for count in range(90, 110)]
    start = time.process_time()
    for measurement in measurements:
        measurement.interval_s()
    assert (time.process_time() - start) / len(measurements) < 0.02


# Ratios


def test_ratio_compares_medians_after_scaling():
    slow = Measurement(samples_s=(2.0,) * 10)
    fast = Measurement(samples_s=(4.0,) * 10)
    # four times the batch in twice the time
    speedup = ratio(slow, fast, scale=4.0)
    assert speedup == Interval(median=2.0, low=2.0, high=2.0, count=10)


def test_ratio_of_noisy_times_holds_the_truth_19_times_in_20():
    inside = 0
    for seed in range(500):
        speedup = ratio(noisy(12, 2 * seed, centre=3.0), noisy(20, 2 * seed + 1))
        inside += speedup.low <= 3.0 <= speedup.high
    assert 465 <= inside <= 495


def test_ratio_with_one_sample_is_as_unsure_as_that_sample():
    speedup = ratio(Measurement(samples_s=(4.0,)), Measurement(samples_s=(1.0,) * 20))
    assert (speedup.low, speedup.median, speedup.high) == pytest.approx((2.0, 4.0, 8.0))


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


# Noise


def test_noise_warning_names_the_spread_and_a_remedy():
    warning = find_noise_warning(Measurement(samples_s=(1.0, 1.0, 1.2, 1.4, 1.6)))
    assert warning is not None
    assert warning.startswith("step times vary by 33 %: another process may be using the cores;")
    assert "raise --budget" in warning


def test_steady_times_give_no_warning_even_with_one_outlier():
    assert find_noise_warning(Measurement(samples_s=(*[1.0] * 20, 9.0))) is None


def test_three_samples_are_too_few_to_complain_about_noise():
    assert find_noise_warning(Measurement(samples_s=(1.0, 2.0, 3.0))) is None
