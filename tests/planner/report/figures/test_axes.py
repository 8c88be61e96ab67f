"""Axes have round ticks, and texts that fit."""

from __future__ import annotations

import pytest

from planner.report.figures.axes import Axis, shorten, tick_text


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 42, [0, 10, 20, 30, 40]),
        (-5.2, 1.1, [-4, -2, 0]),
        (0, 0.0032, [0, 0.001, 0.002, 0.003]),
    ],
)
def test_ticks_are_round(low, high, ticks):
    assert Axis(low, high, 0, 100).ticks() == pytest.approx(ticks)


def test_what_is_counted_has_whole_ticks():
    assert Axis(1, 2, 0, 100, is_counted=True).ticks() == [1, 2]
    assert Axis(1, 7, 0, 100, is_counted=True).ticks() == [2, 4, 6]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (-0.0, "0"), (0.25, "0.25"), (1500, "1500"), (20000, "20k"), (2.5e9, "2.5G")],
)
def test_ticks_are_short(value, text):
    assert tick_text(value) == text


def test_a_long_label_is_cut_and_its_control_characters_are_shown():
    assert shorten("a" * 100, 72) == "a" * 9 + "…"
    assert shorten("\x1b[31m\u202e", 400) == r"\x1b[31m\u202e"
