"""Command that a user may type next."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from sample_plan import FOUND

from launch.workload import Workload
from planner.api.tuning import find_launch_plan_id
from planner.jobs.hosts import Hosts
from planner.jobs.suggested_command import name_database, suggest_command
from probes.timing import Interval

HERE = Hosts.this_machine()


def suggested(
    use_case: str, command: str = "launch", data: str | None = None, plan_id: int | None = None
) -> str:
    workload = Workload(use_case=use_case, data=data)
    return suggest_command(command, workload, db="planner.db", plan_id=plan_id, hosts=HERE)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch, tmp_path):
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "DDLPLAN_DB"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def test_root_is_given_the_option_without_which_launch_ends_at_once(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert suggested("simplebig") == ("ddlplan launch --use-case simplebig --allow-run-as-root")
    assert "root" not in suggested("simplebig", "tune")
    assert "root" not in suggested("script: python train.py")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "root" not in suggested("simplebig")


def test_files_below_the_present_folder_are_named_from_it(tmp_path):
    """What had been typed as train_case.py:Train came back as an absolute path."""
    said = suggested(f"{tmp_path}/cases/mine.py:Mine", "tune", data=f"{tmp_path}/photos")
    assert said == "ddlplan tune --use-case cases/mine.py:Mine --data photos"
    assert f"{tmp_path.parent}/mine.py:Mine" in suggested(f"{tmp_path.parent}/mine.py:Mine")


def test_plan_that_launch_would_not_find_by_itself_is_named(store):
    faster = Interval(median=9e6, low=8e6, high=1e7, count=9)
    changes = ({}, {"throughput_samples_per_s": faster})
    slow, fast = (store.plans.save(replace(FOUND, **change)) for change in changes)
    assert find_launch_plan_id(store, store.plans.get(fast)) is None
    assert find_launch_plan_id(store, store.plans.get(slow)) == slow
    assert f" --plan {slow}" in suggested("simplebig", plan_id=slow)
    assert "--plan" not in suggested("simplebig")


def test_database_is_named_before_the_command_of_a_script_whatever_the_shell_has(monkeypatch):
    db = "/data/my lab.db"
    own, script = "ddlplan launch --plan 3", " -- python 'a -- b.py' --workers {workers}"
    assert name_database(own + script, db) == f"{own} --db '/data/my lab.db'{script}"
    assert name_database("ddlplan probe", db) == "ddlplan probe --db '/data/my lab.db'"
    for same in ("torchrun train.py", "python -m 'unclosed", "ddlplan launch --db COPY --resume"):
        assert name_database(same, db) == same
    assert name_database("ddlplan probe", "planner.db") == "ddlplan probe --db planner.db"
    monkeypatch.setenv("DDLPLAN_DB", db)
    assert name_database(own + script, db) == f"{own} --db '/data/my lab.db'{script}"
