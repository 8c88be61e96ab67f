"""Sizes, numbers and intervals as a person reads them."""

from __future__ import annotations

import pytest

from planner.quantities import (
    format_bytes,
    format_count,
    format_interval,
    format_number,
    format_seconds,
    format_value,
    is_uncertain,
    parse_duration_s,
)
from probes.timing import Interval


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (None, ""),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.977 KiB"),
        (1024, "1.00 KiB"),
        (2**30, "1.00 GiB"),
        (int(2.1 * 2**30), "2.10 GiB"),
        (100 * 2**30, "100 GiB"),
        (2**60, "1048576 TiB"),
    ],
)
def test_sizes_have_three_figures_and_a_unit(size, shown):
    assert format_bytes(size) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (0.00123, "0.00123"),
        (0.4521, "0.452"),
        (2.0, "2.00"),
        (42.84, "42.8"),
        (12345.6, "12346"),
    ],
)
def test_numbers_have_three_figures(value, shown):
    assert format_number(value) == shown


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0", "no duration above zero"),
        ("5x", "no duration above zero"),
        ("99999999h", "longer than 30 years"),  # no clock of the system waits so long
        ("9" * 400, "longer than 30 years"),
    ],
)
def test_durations_that_nobody_can_wait_for_are_refused(text, says):
    assert parse_duration_s("1.5h") == 5400
    with pytest.raises(ValueError, match=f" is {says}: write 90, 90s, 5m or 1h"):
        parse_duration_s(text)


@pytest.mark.parametrize(
    ("time_s", "shown"),
    [
        (0.0, "0 s"),
        (3e-6, "3 us"),
        (0.0124, "12.4 ms"),
        (0.9997, "1 s"),
        (2.5, "2.5 s"),
        (1234.0, "1234 s"),
    ],
)
def test_times_of_steps_have_three_figures_and_no_power_of_ten(time_s, shown):
    assert format_seconds(time_s) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (-0.05, "-0.05"), (9999.4, "9999"), (9999.6, "10000"), (1e30, "1e+30")],
)
def test_values_have_four_figures_and_a_power_of_ten_only_where_they_are_huge(value, shown):
    assert format_value(value) == shown


def test_one_of_a_thing_is_singular():
    shown = [format_count(count, "epoch") for count in (0, 1, 2)]
    assert shown == ["0 epochs", "1 epoch", "2 epochs"]
    assert [format_count(count, "process") for count in (1, 2)] == ["1 process", "2 processes"]


def test_an_interval_is_never_shown_narrower_than_it_is():
    assert format_interval(Interval(median=428.0, low=427.9, high=428.2, count=9)) == "428 ±1"
    assert format_interval(Interval(median=42.8, low=42.1, high=43.5, count=9)) == "42.8 ±0.7"
    assert format_interval(Interval(median=42.8, low=42.8, high=42.8, count=9)) == "42.8 ±0.0"
    assert format_interval(None) == ""


def test_a_wide_interval_with_one_long_side_is_shown_with_both_ends():
    lopsided = Interval(median=9109.0, low=1837.0, high=47096.0, count=9)
    assert format_interval(lopsided) == "9109 (1837 to 47096)"
    assert format_interval(Interval(median=10.0, low=7.0, high=13.0, count=9)) == "10.0 ±3.0"
    assert is_uncertain(lopsided)
    assert not is_uncertain(Interval(median=10.0, low=8.0, high=12.0, count=9))
    assert not is_uncertain(None)
