"""What is said of a noise scale, in one phrase and in one line."""

from __future__ import annotations

from dataclasses import replace

from training_samples import NOISE

from planner.report.runs import describe_noise, noise_span


def test_scale_has_its_interval():
    assert noise_span(NOISE) == "312 (250 to 400)"
    assert describe_noise(NOISE) == "312 (250 to 400) samples after 41 measurements"


def test_doubt_is_a_question_mark_and_said_in_full():
    doubted = replace(NOISE, caveat="BatchNorm")
    assert noise_span(doubted) == "312 (250 to 400)?"
    assert describe_noise(doubted).endswith("; not reliable with BatchNorm")


def test_scale_that_is_not_known_is_called_unclear():
    """A training of one step was told that its scale is unclear after "1 measurements"."""
    unclear = replace(NOISE, scale=None, low=None, high=None, measurements=1)
    assert noise_span(unclear) == "unclear"
    assert describe_noise(unclear).startswith("unclear after 1 measurement: ")
    assert "not clearly above its noise" in describe_noise(unclear)


def test_scale_that_may_be_nothing_is_said_to_reach_down_to_0():
    """The story: the lower end of such an interval was written "0.000000000"."""
    assert noise_span(replace(NOISE, low=0.0)) == "312 (0 to 400)"
