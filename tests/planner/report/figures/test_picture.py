"""A picture is an SVG file of its own: well-formed, without variables or links, nothing cut."""

from __future__ import annotations

from xml.etree import ElementTree

from training_samples import TRAINING

from planner.report.figures.picture import picture
from planner.report.figures.training_figures import loss_figure, rate_figure

FIGURES = [loss_figure(TRAINING), rate_figure(TRAINING)]


def test_picture_needs_no_style_sheet_and_no_link():
    text = picture(FIGURES, "Training 1 & <others>")
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "var(" not in text
    assert "href" not in text
    assert text.count("http") == 1  # the name of the format
    assert "stroke: #1f5cb0" in text


def test_every_plot_lies_within_the_picture():
    root = ElementTree.fromstring(picture(FIGURES * 3, ""))
    places = [g.get("transform") for g in root.iter("{http://www.w3.org/2000/svg}g")]
    assert len(places) == len(set(places)) == 6
    height = float(root.get("height"))
    assert all(float(place.split()[1].rstrip(")")) + 200 < height for place in places)


def test_one_figure_alone_takes_one_column():
    both, one = (
        float(ElementTree.fromstring(picture(figures, "")).get("width"))
        for figures in (FIGURES, FIGURES[:1])
    )
    assert one < 0.6 * both
