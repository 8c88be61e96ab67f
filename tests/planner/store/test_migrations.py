"""Databases of newer and older versions, and such as are not finished."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text
from store_cases import assert_intact, execute, marks

from planner.errors import NoDatabaseError, StoreCorruptError, StoreNewerError
from planner.store import Store
from planner.store.databases.migrations import STEPS, bring_up_to_date
from planner.store.databases.sqlite import SqliteDatabase

fork = multiprocessing.get_context("fork")


@pytest.mark.parametrize("create", [True, False])
def test_a_database_of_a_newer_version_is_refused_and_left_as_it_was(filled, create):
    execute(filled, "UPDATE ddlplan_schema SET version = 99")
    before = filled.read_bytes()
    with pytest.raises(StoreNewerError, match=r"of a newer version .*99.*update ddlplan"):
        Store.open(str(filled), create=create)
    assert filled.read_bytes() == before


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM ddlplan_schema",
        "INSERT INTO ddlplan_schema VALUES (1)",
        "UPDATE ddlplan_schema SET version = 'one'",
        "UPDATE ddlplan_schema SET version = 0",
    ],
)
def test_a_database_without_a_clear_version_is_corrupt(filled, statement):
    execute(filled, statement)
    with pytest.raises(StoreCorruptError, match="version"):
        Store.open(str(filled))


def columns(path):
    tables = execute(path, "SELECT name FROM sqlite_master WHERE type = 'table'")
    return {table: execute(path, f"PRAGMA table_info({table})") for (table,) in tables}


@pytest.fixture
def recorded(tmp_path):
    """A database of the first release, with a plan in it."""
    path = tmp_path / "recorded.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((Path(__file__).with_name("schema_v1.sql")).read_text())
        connection.execute(
            "INSERT INTO plans VALUES (7, NULL, '2026-11-20T12:00:00+00:00', 'simplebig', 'vm', "
            """'sha256:aa', '{"strategy": "sequential", "node_batch": 32}', """
            """'{"median": 2.0, "low": 1.0, "high": 3.0, "count": 9}', NULL, NULL, NULL, '{}')"""
        )
        connection.commit()
    return path


def test_a_database_of_the_first_release_gets_the_tables_of_today(filled, recorded):
    """If this fails, a table was changed without a migration of older databases: write one."""
    with Store.open(str(recorded)) as store:
        assert marks(recorded) == []
        (plan,) = store.plans.find()
        assert (plan.id, plan.step_time, plan.gradient_bytes) == (7, None, None)
        assert plan.begins_early is plan.use_case_digest is plan.peak_device_memory_bytes is None
        assert store.machines.latest_links({}) is None
        assert store.plans.save(plan) == 8
    assert columns(recorded) == columns(filled)
    assert_intact(recorded)


def add_a_column(connection):
    connection.execute(text("ALTER TABLE plans ADD COLUMN energy_j FLOAT"))


def fail_after_a_change(connection):
    add_a_column(connection)
    raise RuntimeError("killed")


def test_an_older_database_takes_the_steps_it_lacks_and_keeps_its_rows(filled):
    database = SqliteDatabase(filled, lock_timeout_s=1)
    bring_up_to_date(database, create=False, steps=(*STEPS, add_a_column))
    bring_up_to_date(database, create=False, steps=(*STEPS, add_a_column))  # not twice
    assert "energy_j" in str(columns(filled)["plans"])
    assert execute(filled, "SELECT version FROM ddlplan_schema") == [(len(STEPS) + 2,)]
    assert execute(filled, "SELECT count(*) FROM trials") == [(1,)]
    with pytest.raises(StoreNewerError):
        Store.open(str(filled))


def test_a_step_that_fails_changes_nothing(filled):
    before = columns(filled)
    with pytest.raises(RuntimeError):
        bring_up_to_date(
            SqliteDatabase(filled, lock_timeout_s=1),
            create=False,
            steps=(*STEPS, fail_after_a_change),
        )
    assert columns(filled) == before
    assert marks(filled) == [0]


def make_and_die(path):
    """End where a new database has its file and tables, but not yet its commit."""
    path.touch()
    database = SqliteDatabase(path, lock_timeout_s=1)

    def write(connection):
        connection.execute(text("CREATE TABLE ddlplan_schema (version INTEGER NOT NULL)"))
        os._exit(0)

    database.write(write)


def test_a_database_whose_making_was_interrupted_is_completed(path):
    maker = fork.Process(target=make_and_die, args=(path,))
    maker.start()
    maker.join()
    with pytest.raises(NoDatabaseError):
        Store.open(str(path), create=False)
    with Store.open(str(path)) as store:
        assert store.plans.find() == []
    assert_intact(path)
