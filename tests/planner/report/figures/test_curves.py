"""Curves show what a series holds in few points, and gaps as gaps."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import fields
from xml.etree import ElementTree

import pytest

from planner.records.usage_record import HostUsage, UsageCurve
from planner.report.figures.curves import Curve, TrialPoint, line_plot, thin, trial_plot
from planner.report.figures.rows import Mark, point_plot
from planner.report.figures.usage_figures import machine_use_figures


def paths(svg, kind):
    return [
        path.get("d")
        for path in ElementTree.fromstring(svg).iter("path")
        if path.get("class") == kind
    ]


def plot(curves, **more):
    return line_plot(curves, title="t", x_title="x", y_title="y", **more)


def test_a_long_curve_keeps_its_extremes():
    points = [(float(x), 1.0) for x in range(10_000)]
    points[4321], points[777] = (4321.0, 9.0), (777.0, -3.0)
    thinned = thin(points, 100)
    assert len(thinned) <= 100
    assert {(4321.0, 9.0), (777.0, -3.0)} <= set(thinned)
    assert [x for x, _ in thinned] == sorted(x for x, _ in thinned)


def test_the_interval_of_the_best_trial_is_not_cut_at_the_top():
    trials = [TrialPoint(x=1, value=100.0, low=80.0, high=130.0, best=100.0)]
    svg = trial_plot(trials, title="t", x_title="x", y_title="y")
    ends = [float(y) for y in re.findall(r"[ V](\d+\.\d)", paths(svg, "spread")[0])]
    value = float(paths(svg, "dots")[-1].split()[1].removesuffix("h0"))
    assert value - min(ends) == pytest.approx(1.5 * (max(ends) - value), rel=0.02)


def test_the_line_where_nothing_changes_leaves_labels_free():
    mark = Mark(label="setting", value=1.0, low=-1.0, high=3.0, text="+1 %")
    svg = point_plot([mark, mark], title="t", unit="%")
    text = [float(t.get("y")) for t in ElementTree.fromstring(svg).iter() if t.text == "setting"]
    (line,) = (d for d in paths(svg, "axis") if "v" in d)
    tops = [float(y) for y in re.findall(r" (\d+\.\d)v16", line)]
    assert len(tops) == 2
    assert all(top > label for top, label in zip(tops, text, strict=True))


def test_a_slow_network_has_a_unit_that_can_be_read():
    curve = UsageCurve(mean=(300.0, 280.0), maximum=(300.0, 280.0))
    names = [each.name for each in fields(HostUsage) if each.name != "gpus"]
    known = {"time_s": (1.0, 2.0), "received_bytes_per_s": curve}
    use = HostUsage(**{**dict.fromkeys(names), **known})
    (figure,) = machine_use_figures({"a": use})
    assert ">kB/s<" in figure.svg
    assert figure.rows[-1][1] == "0.28"


@pytest.mark.parametrize("gap", [None, math.nan, math.inf])
def test_a_missing_value_interrupts_a_curve(gap):
    svg = plot([Curve(label="a", points=[(0, 1.0), (1, 2.0), (2, gap), (3, 2.0), (4, 3.0)])])
    (curve,) = paths(svg, "curve c0 d0")
    assert (curve.count("M"), curve.count("L")) == (2, 2)
    assert not re.search("nan|inf", svg)


def test_values_between_missing_ones_are_dots():
    """Steps of ten seconds left a loss every tenth second, and a plot without anything in it."""
    points = [(float(x), 1.0 if x % 10 == 0 or x > 95 else None) for x in range(100)]
    svg = plot([Curve(label="a", points=points)])
    (dots,) = paths(svg, "marks c0 d0")
    (line,) = paths(svg, "curve c0 d0")
    assert (dots.count("M"), line.count("L")) == (10, 3)


def test_every_curve_is_drawn_in_a_style_of_its_own():
    """The seventh one was left out, of curves and legend, and nothing said so."""
    curves = [Curve(label=f"curve {n}", points=[(0, n), (1, n + 1.0)]) for n in range(14)]
    svg = plot(curves)
    lines = [path.get("class") for path in ElementTree.fromstring(svg).iter("path")]
    styles = Counter(kind for kind in lines if kind.startswith("curve"))
    assert set(styles.values()) == {2}  # the curve, and its sample in the legend
    assert len(styles) == 14
    assert "curve 13" in svg


def test_a_legend_names_several_curves_and_a_level():
    curves = [Curve(label=name, points=[(0, 1.0), (1, 2.0)]) for name in ("node1", "<node2>")]
    svg = plot(curves, reference=("predicted", 5.0))
    texts = [text.text for text in ElementTree.fromstring(svg).iter("text")]
    assert {"node1", "<node2>", "predicted"} <= set(texts)


def test_a_long_name_in_a_legend_goes_on_below():
    """All names were cut where they were the same: what they are of stood at their ends."""
    names = [f"node: generated, 2,000 images, batch {n}, to 60 % of the test set" for n in (32, 64)]
    svg = plot([Curve(label=name, points=[(1, 2.0), (2, 1.0)]) for name in names])
    texts = [t for t in ElementTree.fromstring(svg).iter("text") if t.get("class") == "small"]
    assert " ".join(t.text for t in texts) == " ".join(names)
    assert all(float(t.get("x")) + 7 * len(t.text) <= 480 for t in texts)
    assert [float(t.get("y")) for t in texts] == [12.0, 26.0, 46.0, 60.0]


def test_intervals_of_a_single_curve_are_named_and_lie_beside_the_axis():
    svg = plot([Curve(label="a", points=[(1, 2.0), (2, 1.0)], spread=[(1, 1.0, 3.0)])])
    assert {">a<", ">95 % interval<"} <= set(re.findall(">[^<>]+<", svg))
    _sample, whiskers = paths(svg, "spread")
    assert float(whiskers[1:].split()[0]) > float(paths(svg, "axis")[0][1:].split()[0]) + 10


def test_all_of_a_long_text_beside_an_axis_can_be_seen():
    svg = plot([Curve(label="a", points=[(0, 0.0001), (1, 0.00153)])])
    ends = [t for t in ElementTree.fromstring(svg).iter("text") if "end" in t.get("class").split()]
    assert all(float(t.get("x")) >= 7 * len(t.text) for t in ends)


def test_trials_that_failed_are_crosses_and_the_best_so_far_is_a_line():
    trials = [
        TrialPoint(x=1, value=10.0, low=9.0, high=11.0, best=10.0),
        TrialPoint(x=2, value=None, best=10.0),
        TrialPoint(x=3, value=12.0, low=11.0, high=99.0, best=12.0),
        TrialPoint(x=4, value=8.0, best=12.0, was_ended=True),
    ]
    svg = trial_plot(trials, title="t", x_title="x", y_title="y")
    (dots,) = [d for d in paths(svg, "dots") if d.count("M") > 1]
    assert dots.count("M") == 2
    assert [d.count("l") for d in paths(svg, "crosses")] == [2, 2]  # in the legend, and one
    *_, best = paths(svg, "best")
    assert best.count("V") == 3


def test_trials_all_of_which_failed_are_drawn_too():
    svg = trial_plot([TrialPoint(x=1, value=None)], title="t", x_title="x", y_title="y")
    assert paths(svg, "crosses")
