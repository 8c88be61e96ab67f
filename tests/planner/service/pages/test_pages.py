"""Every page of a filled and of an empty database is sound, whatever texts the database holds."""

from __future__ import annotations

import html
import re

import pytest
from markup import Markup, Pages
from store_cases import STUDY, trial

from planner.service.pages.assets import find_asset
from planner.service.site import PAGES
from planner.store import Store

PATHS = tuple(path.replace("{id}", "1") for path in PAGES)
MOST_BYTES = 200_000

MORE = (
    "/compare?plan=1&plan=2&plan=3",
    "/compare?training=1&training=5&training=7",
    "/compare?machine=1+3",
    "/search?name=a",
    "/search?name=%",
    "/hosts?use_case=simplebig&global_batch=512",
    "/hosts?hosts=atlas,birch",
    "/hosts?hosts=nowhere",
    "/jobs?state=running",
    "/jobs?before=4",
    "/jobs/12",
    "/papers?plot=lerat-simplebig-use",
    "/papers?plot=mnist-cnn",
    "/papers?plot=cifar-throughput",
    "/plans?use_case=simplebig&before=3",
    "/studies?node=nowhere",
    "/studies/1?before=9",
    "/studies/3",
    "/sweeps?use_case=simplebig",
    "/sweeps/2",
    "/trainings?state=failed",
    "/trainings/7",
)


@pytest.mark.parametrize("path", [*PATHS, *MORE])
def test_page_of_a_filled_database_is_sound(pages, path):
    page = pages.get(path)
    assert page.status == 200
    assert Markup(page.html).wrong == []
    assert len(page.html.encode()) < MOST_BYTES


@pytest.mark.parametrize("path", PATHS)
def test_page_without_a_database_says_what_to_type(tmp_path, path):
    compared_and_searched = f"{path}?plan=1&name=atlas"
    assert "ddlplan tune" in Pages(tmp_path / "planner.db").read(compared_and_searched).text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", PATHS)
def test_page_of_an_empty_database_is_sound(store, tmp_path, path):
    page = Pages(tmp_path / "planner.db").get(path)
    assert page.status == (404 if path.endswith("/1") else 200)
    assert Markup(page.html).wrong == []


HOSTILE = (
    "/trainings/4",
    "/jobs/6",
    "/compare?plan=1&plan=2",
    "/compare?training=4",
    "/search?name=a",
)


@pytest.mark.parametrize("path", [*PATHS, *HOSTILE])
def test_texts_of_users_are_no_markup(hostile_pages, path):
    page = hostile_pages.get(path)
    markup = Markup(page.html)
    assert page.status == 200
    assert markup.wrong == []
    assert [values for values in markup.all("script") if "src" not in values] == []
    assert "alert(1)" not in page.html.replace("&lt;script&gt;alert(1)", "")
    assert not set(page.html) & {"\u202e", "\u2066", "\x1b"}
    assert "[31m49" not in page.html
    assert len(page.html.encode()) < MOST_BYTES


@pytest.mark.parametrize("path", PATHS)
def test_commands_name_the_database_that_is_shown(pages, lab_db, path, monkeypatch):
    """What was typed showed, or filled, planner.db of the present folder.

    Whoever reads a page may have no DDLPLAN_DB, whatever the server was started with.
    """
    offered = re.compile(r"""(?:class="command">|type: )<code>(ddlplan [^<]*)</code>""")
    commands = list(map(html.unescape, offered.findall(pages.get(path).html)))
    assert commands or path not in ("/plans/1", "/studies/1", "/sweeps/1", "/trainings/1")
    named = (f" --db {lab_db}", " --db COPY")  # what stands for a copy on another machine
    assert [one for one in commands if not any(name in one for name in named)] == []
    said = "with a copy of this database as COPY" in pages.get(path).html
    assert said == any(one.endswith(named[1]) for one in commands)
    monkeypatch.setenv("DDLPLAN_DB", str(lab_db))
    assert [html.unescape(one) for one in offered.findall(pages.get(path).html)] == commands


def test_commands_for_what_papers_lack_name_the_database_that_is_shown(tmp_path, monkeypatch):
    """The story: those in a long sentence were cut off before the name, as it comes last."""
    db = tmp_path / ("long" * 50) / "planner.db"
    db.parent.mkdir()
    Store.open(str(db)).close()
    monkeypatch.setenv("DDLPLAN_DB", str(db))
    text = "\n".join(re.findall('class="wide warn">([^<]*)<', Pages(db).get("/papers").html))
    commands = re.findall("ddlplan (?:report|tune|launch|sweep|compare) --", text)
    assert len(commands) == text.count(f" --db {db}") > 1


def test_every_page_loads_nothing_but_assets(pages):
    for path in PATHS:
        markup = Markup(pages.get(path).html)
        loaded = [v["href"] for v in markup.all("link")] + [v["src"] for v in markup.all("script")]
        for there in loaded:
            name, _, digest = there.removeprefix("/static/").partition("?v=")
            asset = find_asset(name)
            assert asset.digest == digest
        assert markup.all("img") == []


def test_papers_lead_to_each_of_their_plots(pages):
    links = [values.get("href", "") for values in Markup(pages.get("/papers").html).all("a")]
    plots = [link for link in links if link.startswith("/papers?plot=")]
    assert len(plots) == 6
    assert {pages.get(link).status for link in plots} == {200}
    assert pages.get("/papers?plot=nothing").status == 400


def test_papers_show_what_was_stored_since_they_were_made(store, tmp_path):
    """They are kept until something changes: every trial is read for them."""
    pages = Pages(tmp_path / "planner.db")
    assert "study 1" not in pages.get("/papers").html
    store.studies.add_trial(store.studies.get_or_create(STUDY), trial(0))
    assert "study 1" in pages.get("/papers").html
    store.studies.add_trial(store.studies.begin_afresh(STUDY), trial(1))
    assert "study 2" in pages.get("/papers").html


def test_page_names_the_last_change_before_it_was_made(pages, lab_db):
    """The story: what changed until its stream was open was shown with the next change alone."""
    with Store.open(str(lab_db)) as store:
        newest = store.events.newest()
    assert newest > 0
    (body,) = Markup(pages.get("/plans").html).all("body")
    assert body["data-seen"] == str(newest)


def test_assets_are_found_by_their_names_alone():
    for name in ("figures.css", "site.css", "live.js", "icon.svg"):
        assert find_asset(name) is not None
    for name in ("figure.py", "../site.css", "site.css/", "", "x"):
        assert find_asset(name) is None


@pytest.mark.parametrize("query", ["before=0", "before=x", "before=1,2", "state=nothing"])
def test_a_value_that_is_none_is_refused(pages, query):
    page = pages.get(f"/jobs?{query}")
    assert page.status == 400
    assert Markup(page.html).wrong == []


def test_a_database_that_cannot_be_used_is_said_without_its_path(tmp_path, capsys):
    db = tmp_path / "planner.db"
    db.write_bytes(b"this is no database" * 1000)
    page = Pages(db).get("/")
    assert page.status == 503
    assert str(tmp_path) not in page.html
    assert "planner.db" in capsys.readouterr().err
