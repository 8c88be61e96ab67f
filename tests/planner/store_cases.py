"""A study and its trials, and what a database holds of them, for tests of the store."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from launch.plan import Plan
from planner.store import Store
from planner.trials.result import Outcome, Role, TrialResult
from planner.tuning.study import Study
from probes.timing import Measurement

STUDY = Study(
    use_case="simplebig",
    node="vm",
    fingerprint="sha256:aa",
    precision="fp32",
    software={"torch": "2.15.0"},
    data="photos",
    seed=0,
)


def trial(mark, samples=10):
    return TrialResult(
        plan=Plan(strategy="sequential", node_batch=32),
        role=Role.SEARCH,
        outcome=Outcome.OK,
        measurement=Measurement(samples_s=(1.5,) * samples),
        elapsed_s=1.0,
        parameters={"mark": mark},
    )


def marks(url):
    """Give the marks of the trials that a database holds, whose numbers have no gap."""
    with Store.open(str(url), create=False) as store:
        found = store.studies.all_trials()
    assert [one.number for one in found] == list(range(len(found)))
    return [one.result.parameters["mark"] for one in found]


def execute(path, sql):
    """Run SQL on a file by another connection, and give its rows."""
    with closing(sqlite3.connect(path, timeout=30)) as connection, connection:
        return connection.execute(sql).fetchall()


def assert_intact(path):
    assert execute(path, "PRAGMA integrity_check") == [("ok",)]
    assert execute(path, "PRAGMA foreign_key_check") == []


def write_trials(url, writer=0, count=1):
    with Store.open(str(url)) as store:
        study_id = store.studies.get_or_create(STUDY)
        for number in range(count):
            store.studies.add_trial(study_id, trial(100 * writer + number))
