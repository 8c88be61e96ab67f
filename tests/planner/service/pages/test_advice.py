"""What pages advise and claim is no more than what is stored shows."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from random import Random
from urllib.parse import quote, urlencode

import pytest
from imagined_lab import NOW, Lab, fill
from lab_machines import make_links
from markup import Markup, Pages
from store_cases import STUDY
from worth_cases import FACTS, NODE, STORED, TRIALS

from launch.plan import Plan
from planner.api import plans, together
from planner.plans.software import current_software
from planner.report.figures.figure import figure_html
from planner.report.figures.plan_figures import plan_figures
from planner.report.figures.study_figures import effects_figure
from planner.service.pages.view import end_of_times
from planner.store import Store
from planner.worth.setting_effects import SettingEffect
from planner.worth.worth import assess
from probes.timing import Interval

OLD = {**current_software(), "torch": "1.9.1"}


def around(median: float, low: float, high: float) -> Interval:
    return Interval(median=median, low=low, high=high, count=9)


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> Path:
    """The database of a lab, which tests copy."""
    db = tmp_path_factory.mktemp("advice") / "planner.db"
    fill(db, Lab(machines=2, studies=3, trials=24, plans=3, trainings=4, jobs=10))
    return db


@pytest.fixture
def change_plan(filled, tmp_path):
    """Store a changed copy of a lab's last plan; give its number and the pages."""
    db = tmp_path / "planner.db"
    shutil.copy(filled, db)
    pages = Pages(db, allows_actions=True, now=lambda: NOW)

    def change(**changes):
        stored = plans.find(db=str(db))[-1].stored
        with Store.open(str(db), now=lambda: NOW) as store:
            saved = store.plans.save(replace(stored, id=None, **changes), ends_search=True)
        return saved, stored, pages

    return change


def test_a_script_is_launched_by_its_command(change_plan):
    plan, _, pages = change_plan(
        use_case="script:python train.py '{batch}'",
        plan=Plan(strategy="script", node_batch=32, options={"batch": 32}),
    )
    said = pages.read(f"/plans/{plan}").text
    assert f"ddlplan launch --plan {plan} --db COPY -- python train.py {{batch}}" in said
    assert "YOUR_SCRIPT.py" not in said


def test_a_new_search_of_a_script_measures_as_before(change_plan):
    """The story: a script of --step-regex, tuned again as was said, showed no steps."""
    options = {"step_regex": "loss", "no_python": True}
    plan, _, pages = change_plan(
        use_case="script:./train",
        plan=Plan(strategy="script", node_batch=32, options=options),
        software=OLD,
        study_id=None,  # the lab's is one of a use case, with --precision auto
    )
    said = "ddlplan tune --no-python --step-regex loss --db COPY -- ./train"
    shown = pages.read(f"/plans/{plan}").text
    assert said in shown[: shown.index("To train with it")]  # exports below had it too


@pytest.mark.parametrize(("served", "is_offered"), [("/data/photos", True), (None, False)])
def test_a_plan_is_searched_and_trained_with_what_it_was_found_with(
    change_plan, tmp_path, served, is_offered
):
    """The story: the search offered had fp32 alone, and the job trained on drawn samples."""
    study = replace(STUDY, precision="auto", facts=replace(FACTS, data="/data/photos"))
    with Store.open(str(tmp_path / "planner.db"), now=lambda: NOW) as store:
        study_id = store.studies.get_or_create(study)
        for trial in TRIALS:
            store.studies.add_trial(study_id, trial.result)
    plan, _, _ = change_plan(use_case="case.py:Own", study_id=study_id, software=OLD)
    pages = Pages(
        tmp_path / "planner.db", allows_actions=True, use_cases=("case.py:Own",), data=served
    )
    said = pages.read(f"/plans/{plan}").text
    case = "--use-case case.py:Own --data /data/photos"
    assert f"ddlplan tune {case} --precision auto" in said
    job = f"ddlplan launch {case} --plan {plan} --allow-stale --detach"
    assert ("Train with this plan" in said, job in said) == (is_offered, is_offered)


@pytest.mark.parametrize("is_generated", [True, False])
def test_an_imported_plan_is_not_trained_on_drawn_samples_in_place_of_its_data(
    change_plan, is_generated
):
    plan, _, pages = change_plan(study_id=None, is_generated=is_generated)
    assert ("Train with this plan" in pages.read(f"/plans/{plan}").text) is is_generated


def test_a_plan_that_changes_its_script_runs_nowhere_else(change_plan):
    plan, _, pages = change_plan(
        use_case="script:python train.py",
        plan=Plan(strategy="script", node_batch=32, options={"patch_autocast": "bf16"}),
    )
    assert "changes the script itself (autocast=bf16)" in pages.read(f"/plans/{plan}").text


def test_a_stale_plan_is_not_what_to_type_first(change_plan):
    plan, stored, pages = change_plan(software=OLD)
    said = pages.read(f"/plans/{plan}").text
    tune, launch = said.index("ddlplan tune --use-case"), said.index("ddlplan launch --use-case")
    assert tune < launch
    assert f"on {stored.node}, with a copy of this database as COPY, type:" in said[:tune]
    assert said.count(f"--plan {plan} --allow-stale") == 2  # without JavaScript too
    assert f"this server has {current_software()['torch']}" in said
    assert ", here is" not in said
    assert "STALE where it was exported" in said
    of_study = pages.read(f"/studies/{stored.study_id}").text
    assert "ddlplan tune --use-case" in of_study
    assert "ddlplan launch" not in of_study


def test_a_plan_that_holds_is_what_to_type(change_plan):
    plan, stored, pages = change_plan(software=current_software())
    for address in (f"/plans/{plan}", f"/studies/{stored.study_id}"):
        said = pages.read(address).text
        assert f"--plan {plan}" in said
        assert "ddlplan tune" not in said
        assert "--allow-stale" not in said


@pytest.mark.parametrize(
    ("lead", "title", "searches"),
    [
        (around(1.1, 1.05, 1.15), "Why it wins", False),
        (around(1.02, 0.95, 1.09), "Not shown to be the fastest", False),
        (around(0.76, 0.565, 1.209), "Not shown to be the fastest", True),
        (around(0.76, 0.7, 0.8), "Another plan was faster", True),
    ],
)
def test_a_plan_wins_where_its_trials_show_it(change_plan, lead, title, searches):
    _, stored, _ = change_plan(software=current_software())
    others = tuple(
        replace(one, speedup=lead) if one.name == "runner_up" else one for one in stored.comparisons
    )
    plan, _, pages = change_plan(software=current_software(), comparisons=others)
    said = pages.read(f"/plans/{plan}").text
    assert title in said
    assert ("ddlplan tune" in said) is searches
    assert ("not told apart" in said) is title.startswith("Not shown")


def test_wide_intervals_are_marked_and_shown_with_both_ends(change_plan):
    plan, _, pages = change_plan(
        throughput_samples_per_s=around(9109, 1837, 47096), software=current_software()
    )
    for markup in (pages.read(f"/plans/{plan}"), pages.read("/"), pages.read("/plans")):
        assert "9109 (1837 to 47096) not reliable" in markup.text
        assert "±37" not in markup.text
    plan, _, pages = change_plan(throughput_samples_per_s=around(100, 75, 125))
    assert "100 ±25 uncertain" in pages.read(f"/plans/{plan}").text


def test_exports_that_are_to_be_copied_have_their_beginning(change_plan):
    """The story: of a long document the end was shown, as of a log."""
    plan, _, pages = change_plan(use_case="x" * 17_000)
    said = pages.read(f"/plans/{plan}").text
    assert '{\n  "id"' in said
    assert "#!/bin/sh\n" in said


def test_a_long_name_is_whole_where_a_link_or_a_field_needs_it(change_plan):
    """The story: links ended after 300 characters, so that they led to an empty list."""
    options = " ".join(f"--option-{number} {number}" for number in range(40))
    name = f"script:python train.py '{{batch}}' {options}"
    plan, _, pages = change_plan(
        use_case=name, plan=Plan(strategy="script", node_batch=32, options={"batch": 32})
    )
    links = [values.get("href") for values in pages.read(f"/plans/{plan}").all("a")]
    assert f"/plans?use_case={quote(name)}" in links
    query = urlencode({"use_case": name, "before": plan + 1})
    listed = pages.read(f"/plans?{query}")
    links = [values.get("href") for values in listed.all("a")]
    assert f"/plans?{urlencode({'use_case': name})}" in links
    assert name in [values.get("value") for values in listed.all("input")]


def test_one_outlier_does_not_squeeze_the_small_plots(change_plan, tmp_path):
    _, _, pages = change_plan()
    plan, *_ = change_plan(speedup=around(250, 3, 900))
    found = plans.find(db=str(tmp_path / "planner.db"))
    assert next(one for one in found if one.stored.id == plan).stored.speedup.high == 900
    assert end_of_times(found) < 100
    places = re.findall(r"(?:cx=.|H)(\d+\.\d)", pages.get("/plans").html)
    assert places
    assert max(map(float, places)) <= 120


def test_both_pages_say_which_figure_of_a_setting_to_trust():
    worth = assess(STORED, TRIALS, FACTS, NODE)
    changed = next(one for one in plan_figures(STORED, worth) if "setting" in one.title)
    assert "trust what was measured first" in figure_html(changed, "a")
    effect = SettingEffect(setting="a", value="1", other="2", speed=around(1.1, 1.0, 1.2))
    assert "trust those first" in figure_html(effects_figure([effect]), "a")


def test_command_lines_say_what_they_do_not_set(change_plan):
    _, stored, _ = change_plan()
    chosen = replace(
        stored.plan, memory_format="channels_last", fused_optimizer=True, node_batch=256
    )
    plan, _, pages = change_plan(plan=chosen)
    said = pages.read(f"/plans/{plan}").text
    assert "how these wait, and the allocator. Your script has to set: batch 256," in said
    assert "channels_last" in said
    assert "fused optimizer" in said


@pytest.mark.parametrize("path", ["/", "/plans", "/studies/1", "/jobs", "/machines", "/trainings"])
def test_every_cell_of_a_list_names_its_column_for_narrow_screens(pages, path):
    markup = Markup(pages.get(path).html)
    cells = [values for tag, values in markup.elements if tag == "td" and values.get("class")]
    assert cells
    assert [values for values in cells if not values.get("data-label")] == []


def test_hosts_together_shows_one_use_case_that_can_be_predicted(change_plan, tmp_path):
    _, was, pages = change_plan(use_case="alone", use_case_digest="sha256:alone", software=OLD)
    found = together.predict(db=str(tmp_path / "planner.db"))
    assert found.use_case == "simplebig"  # both hosts have a plan of it, and it is not the latest
    assert found.reason is None
    alone = together.predict("alone", db=str(tmp_path / "planner.db"))
    assert alone.reason.endswith("run ddlplan tune --use-case alone there")
    said = pages.read("/hosts").text
    assert "generated data" not in said
    assert "Predictions have no interval" in said
    assert "Time of a gradient sum over all hosts, by its size" in said
    assert "Launches: measured beside predicted" in said
    assert "Launches: measured beside predicted" not in pages.get("/hosts?use_case=alone").html
    same = {"use_case": was.use_case, "use_case_digest": was.use_case_digest}
    _, _, made_up = change_plan(**same, software=was.software, is_generated=True)
    assert "simplebig generated data on 2 hosts" in made_up.read("/hosts").text


def test_network_that_is_shown_is_one_of_those_to_choose_from(change_plan, tmp_path):
    """The story: it was not where twelve later ones were, and "Predict" changed the hosts."""
    *_, pages = change_plan()
    with Store.open(str(tmp_path / "planner.db")) as store:
        hosts = ",".join(store.machines.find_links()[-1].hosts)
        for number in range(12):
            nodes = [replace(NODE, node=f"node{number}"), replace(NODE, node="other")]
            store.machines.save_links(make_links(nodes, Random(number), NOW))
    page = pages.read(f"/hosts?hosts={hosts}")
    options = [one for one in page.all("option") if one["value"] == hosts]
    assert ["selected" in one for one in options] == [True]
