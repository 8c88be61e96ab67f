"""The commands ``ddlplan sweep``: shown, killed, gone on with."""

from __future__ import annotations

import csv
import io
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from sample_plan import FOUND
from store_cases import STUDY
from worth_cases import FACTS

from planner.quantities import format_count
from planner.store import Store

CLOUDS = f"{Path(__file__).parents[1] / 'sweeps' / 'clouds.py'}:Clouds"
SWEEP = ("sweep", "--use-case", CLOUDS, "--batches", "8,16,32,64", "--devices", "1,2")


def wait_for_a_point(ddlplan) -> None:
    # The command's own row is written by a thread, which may have come before the database.
    ddlplan.wait_until(
        lambda: ddlplan.count("sweep_points") and ddlplan.count("jobs"), "no point is stored"
    )


@pytest.mark.long
def test_killed_sweep_leaves_no_process_and_goes_on_where_it_was(ddlplan):
    process = ddlplan.start(*SWEEP, "--epochs", "3")
    wait_for_a_point(ddlplan)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    ddlplan.wait_until_all_ended()
    stored = ddlplan.count("sweep_points")
    assert 0 < stored < 8
    ended = ddlplan.run(*SWEEP, "--epochs", "3", "--html", "sweep.html", "--csv")
    assert ended.code == 0, ended.err
    assert f"{format_count(8 - stored, 'point')} in" in ended.err
    assert len(list(csv.DictReader(io.StringIO(ended.out)))) == 8
    assert ddlplan.count("sweeps") == 1
    assert (ddlplan.folder / "sweep.html").read_text().count("<figure") == 4
    states = {row["state"] for row in ddlplan.data("jobs", "list")}
    assert states == {"interrupted", "done"}
    (shown,) = ddlplan.data("sweep", "list")
    assert (shown["num_points"], shown["size"]) == (8, 8)
    assert len(ddlplan.data("sweep", "show", 1)["points"]) == 8


@pytest.mark.long
def test_interrupted_sweep_says_what_is_stored(ddlplan):
    process = ddlplan.start(*SWEEP, "--epochs", "3")
    wait_for_a_point(ddlplan)
    os.kill(process.pid, signal.SIGINT)
    ended = ddlplan.end(process)
    assert ended.code == 128 + signal.SIGINT
    assert "points are stored; the same command goes on from here" in ended.err
    ddlplan.wait_until_all_ended()


@pytest.mark.long
def test_detached_sweep_is_a_job_that_names_its_sweep(ddlplan):
    batches = ("sweep", "--use-case", CLOUDS, "--batches", "16", "--devices", "1")
    job = ddlplan.data(*batches, "--detach", "--html", "sweep.html")
    ended_at = f"SELECT ended_at FROM jobs WHERE id = {job['id']}"
    ddlplan.wait_until(lambda: ddlplan.query(ended_at) != [(None,)], "the job runs on")
    ended = ddlplan.data("jobs", "show", job["id"])
    assert (ended["kind"], ended["state"], ended["sweep_id"]) == ("sweep", "done", 1)
    assert ended["progress"]["done"] == 1
    assert (ddlplan.folder / "sweep.html").exists()
    assert ddlplan.run(*batches, "--detach", "--csv").code == 2
    ddlplan.wait_until_all_ended()


def test_plans_of_a_sweep_know_their_use_case(tuned):
    refused = tuned.run("sweep", "--plans", 1, "--batches", 8, "--html", ".")
    assert "--html .: " in refused.refusal()


def test_plans_that_were_found_with_different_data_ask_which_to_train_with(ddlplan):
    """The story: the data of the first one were those of all, without a word."""
    with Store.open(str(ddlplan.folder / "planner.db")) as store:
        for folder in ("/data/one", "/data/other", None):
            facts = replace(FACTS, data=folder)
            study_id = store.studies.get_or_create(replace(STUDY, data=str(folder), facts=facts))
            store.plans.save(replace(FOUND, id=None, use_case="simplebig", study_id=study_id))
    for plans, found in (
        ("1,2", "plan 1 was found with /data/one, and plan 2 with /data/other"),
        ("2,3", "plan 2 was found with /data/other, and plan 3 with no data that were named"),
    ):
        error = ddlplan.run("sweep", "--plans", plans, "--batches", 8).refusal()
        assert error == f"error: {found}: say with --use-case and --data what to train"
    refused = ddlplan.run("sweep", "--plans", "1,2", "--batches", 8, "--data", "nowhere")
    assert "nowhere: no such file or folder" in refused.refusal()


@pytest.mark.parametrize("options", [("--allow-stale",), ("--allow-stale", "--plans", "best")])
def test_stale_plans_are_allowed_without_a_word_only_where_plans_are_named(ddlplan, options):
    ended = ddlplan.run(*SWEEP, *options, "--html", ".")
    assert ended.code == 2
    warning = "--allow-stale and no --plans: no stored plan is used, so nothing changes by it"
    assert (warning in ended.err) == ("--plans" not in options)
