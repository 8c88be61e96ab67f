"""Where no plan is stored, one line names what has none, on which host, and how to find one."""

from __future__ import annotations

import platform
from dataclasses import replace

import pytest
import sample_plan

from launch.plan import Plan
from planner.scripts.naming import STRATEGY, script_name
from planner.store import Store

HERE = platform.node()
SCRIPT = ("python", "train.py", "{batch}")
TUNE_SCRIPT = "ddlplan tune --choices batch=A,B -- python train.py {batch}"
TUNE_CASE = "ddlplan tune --use-case simplebig"


@pytest.fixture
def without_plans(ddlplan):
    """A folder with a script and a database that holds nothing."""
    (ddlplan.folder / "train.py").touch()
    Store.open(str(ddlplan.folder / "planner.db")).close()
    return ddlplan


@pytest.fixture
def with_plans_of_another_host(without_plans):
    """The same, with plans of a use case and of the script that were made elsewhere."""
    elsewhere = replace(sample_plan.FOUND, node="elsewhere")
    of_script = Plan(strategy=STRATEGY, node_batch=8, options={"batch": 8})
    with Store.open(str(without_plans.folder / "planner.db")) as store:
        store.plans.save(elsewhere)
        store.plans.save(replace(elsewhere, use_case=script_name(SCRIPT), plan=of_script))
    return without_plans


def refused(ddlplan, *words: str) -> str:
    """Give the one line of a command that ends for lack of a plan."""
    ended = ddlplan.run(*words)
    assert ended.out == ""
    return ended.refusal(3)


COMMANDS = {
    "launch a script": (("launch", "--", *SCRIPT), "python train.py {batch}", TUNE_SCRIPT),
    "best of a script": (("plans", "best", "--", *SCRIPT), "python train.py {batch}", TUNE_SCRIPT),
    "best of a case": (("plans", "best", "--use-case", "simplebig"), "simplebig", TUNE_CASE),
    "launch a case": (("launch", "--use-case", "simplebig"), "simplebig", TUNE_CASE),
}
every_command = pytest.mark.parametrize(("words", "what", "tune"), COMMANDS.values(), ids=COMMANDS)


@every_command
def test_this_host_is_named_where_nothing_is_stored(without_plans, words, what, tune):
    assert refused(without_plans, *words) == f"error: no plan for {what} on {HERE}: run {tune}"


@every_command
def test_plans_of_another_host_are_none_of_this_one(with_plans_of_another_host, words, what, tune):
    line = refused(with_plans_of_another_host, *words)
    assert line == f"error: no plan for {what} on {HERE}: run {tune}"


@pytest.mark.parametrize("name", ["launch a script", "launch a case"])
def test_the_database_is_named_where_there_is_none(ddlplan, name):
    words, what, tune = COMMANDS[name]
    (ddlplan.folder / "train.py").touch()
    line = refused(ddlplan, words[0], "--db", "mine.db", *words[1:])
    begin, options = tune.split(" --", 1)
    assert line.startswith(f"error: no plan for {what} in mine.db: run {begin} ")
    assert "--db mine.db" in line
    assert f"--{options}".split(" -- ")[0] in line
    assert ddlplan.listing() == ["train.py"]


def test_best_of_a_named_host_is_its_own_and_another_name_is_told(with_plans_of_another_host):
    best = ("plans", "best", "--use-case", "simplebig", "--node")
    assert with_plans_of_another_host.data(*best, "elsewhere")["node"] == "elsewhere"
    line = refused(with_plans_of_another_host, *best, "nowhere")
    assert line == f"error: no plan for simplebig on nowhere: run {TUNE_CASE}"


def test_database_of_a_folder_above_is_named(without_plans, command_line):
    """The plans were a folder above, and `tune` was named."""
    below = without_plans.folder / "cases" / "mine"
    below.mkdir(parents=True)
    (below / "train.py").touch()
    for words, what, tune in (COMMANDS["launch a case"], COMMANDS["launch a script"]):
        line = refused(command_line(below), *words)
        other = "or name the database of a folder above with --db ../../planner.db"
        assert line == f"error: no plan for {what} in planner.db: run {tune}, {other}"
    listed = command_line(below).run("plans", "list")
    assert listed.code == 0
    assert "--db ../../planner.db names that of a folder above" in listed.err
    there = refused(command_line(below), "launch", "--db", "../../planner.db", *words[1:])
    assert there.startswith(f"error: no plan for {what} on {HERE}: run ")
    assert [file.name for file in below.iterdir()] == ["train.py"]
