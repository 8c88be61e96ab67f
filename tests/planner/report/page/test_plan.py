"""The page of a plan stands by itself, and is there as a whole or not at all."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from worth_cases import FACTS, NODE, STORED, TRIALS

from planner.errors import UsageError
from planner.report.page.files import check_page, write_page
from planner.report.page.plan import plan_page
from planner.worth.worth import assess

WORTH = assess(STORED, TRIALS, FACTS, NODE)
PAGE = plan_page(STORED, (), TRIALS, WORTH)


def charts(page):
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def test_page_has_no_scripts_and_no_links():
    assert not re.search(r"<script|<link|<img|<a |href|src=|url\(|@import|http", PAGE)


def test_every_chart_is_sound_and_names_its_unit():
    words = [{text.text for text in chart.iter("text")} for chart in charts(PAGE)]
    units = ["samples/s", "ms", "% of samples/s", "epochs"]
    assert len(words) == len(units)
    for said, unit in zip(words, units, strict=True):
        assert unit in said


def test_colours_are_for_light_and_for_dark():
    assert "prefers-color-scheme: dark" in PAGE


def test_names_of_users_are_no_markup():
    class Found(HTMLParser):
        def handle_starttag(self, tag, attrs):
            assert tag != "b"

    evil = replace(STORED, use_case="<b>bold</b>", node="a&b\x1b[31m")
    page = plan_page(evil, ["<b>stale</b>"], TRIALS, WORTH)
    Found().feed(page)
    assert "&lt;b&gt;bold" in page
    assert "\x1b" not in page


def test_a_plan_from_a_file_has_a_page_too():
    page = plan_page(replace(STORED, study_id=None), (), (), None)
    assert charts(page) == []
    assert "All settings" in page


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    file = tmp_path / "plan.html"
    write_page(file, "old")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(UsageError, match=r"no space left: name another file"):
        write_page(file, "new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_folder_that_is_not_there_is_named_once_and_no_hidden_file(tmp_path):
    """The name of the file beside it, .page.html.4711, stood in the line."""
    file = tmp_path / "missing" / "page.html"
    for write in (check_page, partial(write_page, text="page")):
        with pytest.raises(UsageError) as raised:
            write(file)
        reason = f"there is no folder {tmp_path / 'missing'}"
        assert str(raised.value) == f"--html {file}: {reason}: name another file"


@pytest.mark.parametrize("place", ["", "missing/plan.html"])
def test_a_place_that_is_no_file_is_refused(place, tmp_path):
    with pytest.raises(UsageError, match="name another file"):
        write_page(tmp_path / place, "page")
