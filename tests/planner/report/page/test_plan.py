"""The page of a plan stands by itself, and is there as a whole or not at all."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from worth_cases import BEST, FACTS, NODE, OBJECTIVE, STORED, TRIALS

from planner.errors import UsageError
from planner.input_cost.epochs import InputCost
from planner.plans.measured_steps import StepPoint, steps_from_points
from planner.report.page.files import check_page, write_page
from planner.report.page.plan import plan_page
from planner.report.worth import worth_facts
from planner.worth.batch_advice import MeasuredNoise
from planner.worth.worth import assess
from probes.hardware import DataSpeed

WORTH = assess(STORED, TRIALS, FACTS, NODE)
PAGE = plan_page(STORED, (), TRIALS, WORTH)


def charts(page):
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def test_page_has_colours_for_light_and_for_dark_and_no_scripts_and_links():
    assert "prefers-color-scheme: dark" in PAGE
    assert not re.search(r"<script|<link|<img|<a |href|src=|url\(|@import|http", PAGE)


def test_every_chart_is_sound_and_names_its_unit():
    words = [{text.text for text in chart.iter("text")} for chart in charts(PAGE)]
    units = ["samples/s", "ms", "% of samples/s", "epochs"]
    assert len(words) == len(units)
    for said, unit in zip(words, units, strict=True):
        assert unit in said


def test_other_batches_and_the_cost_of_the_input_are_on_it_as_in_the_text():
    points = [StepPoint(node_batch=n, step_s=0.2 + 0.022 * n) for n in (64, BEST.node_batch)]
    noise = MeasuredNoise.of_objective(OBJECTIVE)
    steps = replace(STORED, step_time=steps_from_points(points))
    worth = assess(steps, TRIALS, FACTS, NODE, noise)
    cost = InputCost(
        data=DataSpeed(path="/mnt/data", file_system="nfs4"),
        train_samples=3200,
        validation_samples=10,
        base_s=0.025,
        in_place_s=lambda unread: 0.025 * (1 + unread),
    )
    page = plan_page(STORED, (), TRIALS, worth, cost)
    assert len(charts(page)) == len(charts(PAGE)) + 1
    assert "of this plan&#x27;s time to a loss" in page
    for choice in worth.batches.choices:
        assert f"<td>{choice.node_batch}</td>" in page
    assert "data: /mnt/data on nfs4, epoch 1 takes 2m 40s, a late one 1m 20s" in page


def test_settings_that_were_not_tried_are_on_it_as_in_the_text():
    """The story: the page lacked them alone of all that ``plans show`` prints."""
    (untried,) = [text for name, text in worth_facts(WORTH) if name == "not tried"]
    assert "fused_optimizer false" in untried
    assert f"Not tried: {untried}." in PAGE


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
    command = "script:python train.py '{batch}'"
    page = plan_page(replace(STORED, study_id=None, use_case=command), (), (), None)
    assert charts(page) == []
    assert "All settings" in page
    assert ": python train.py {batch} on " in page


def test_a_page_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    file = tmp_path / "plan.html"
    write_page(file, "old")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(UsageError, match=r"no space left: name another file"):
        write_page(file, "new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_a_pipe_may_be_named_where_no_file_can_be_made_beside_it():
    """The story: --html /dev/stdout was refused before the work: nobody may make files in /dev."""
    reading, writing = os.pipe()
    check_page(Path(f"/dev/fd/{writing}"))
    write_page(Path(f"/dev/fd/{writing}"), "page")
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b"page"


def test_a_page_goes_to_the_file_to_which_a_stream_is_redirected(tmp_path):
    """The story: it took the place of /dev/stdout, and the file stayed empty."""
    file = tmp_path / "page.html"
    with file.open("w") as stream:
        link = Path(f"/dev/fd/{stream.fileno()}")
        check_page(link)
        write_page(link, "page")
    assert file.read_text() == "page"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_check_of_a_page_leaves_nothing(tmp_path):
    check_page(tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="is a directory: name another file"):
        check_page(tmp_path)
    with pytest.raises(UsageError, match="name another file"):
        write_page(tmp_path, "page")
    assert list(tmp_path.parent.glob(f".{tmp_path.name}*")) == []


def test_folder_that_is_not_there_is_named_once_and_no_hidden_file(tmp_path):
    """The name of the file beside it, .page.html.4711, stood in the line."""
    file = tmp_path / "missing" / "page.html"
    for write in (check_page, partial(write_page, text="page")):
        with pytest.raises(UsageError) as raised:
            write(file)
        reason = f"there is no folder {tmp_path / 'missing'}"
        assert str(raised.value) == f"--html {file}: {reason}: name another file"
