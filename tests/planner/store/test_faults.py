"""Foreign and damaged files: errors are clear, and what is no database is left as it was."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

import pytest
from store_cases import STUDY, execute, marks

from planner.errors import StoreCorruptError
from planner.store import Store


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize(
    "content", [b"hello\n", b"plain text, longer than a header\n" * 100, b"\x00" * 4096, b"SQLite"]
)
def test_a_file_that_is_no_database_is_refused_and_left_as_it_was(path, content, create):
    path.write_bytes(content)
    with pytest.raises(StoreCorruptError, match=r"planner\.db: .*choose another"):
        Store.open(str(path), create=create)
    assert path.read_bytes() == content
    assert [file.name for file in path.parent.iterdir()] == ["planner.db"]


def test_a_database_of_another_program_is_refused_and_left_as_it_was(path):
    execute(path, "CREATE TABLE bookmarks (url TEXT)")
    execute(path, "CREATE TRIGGER log AFTER INSERT ON bookmarks BEGIN DELETE FROM bookmarks; END")
    before = path.read_bytes()
    with pytest.raises(StoreCorruptError, match="another program"):
        Store.open(str(path))
    assert path.read_bytes() == before


@pytest.mark.parametrize("kept", [100, 4096, 10000])
def test_a_database_that_was_cut_off_is_corrupt(filled, kept):
    os.truncate(filled, kept)
    with pytest.raises(StoreCorruptError):
        marks(filled)


def test_a_database_with_a_table_missing_is_corrupt(store, database):
    database.execute("DROP TABLE plans")
    with pytest.raises(StoreCorruptError, match="plans"):
        store.plans.find()


@pytest.mark.parametrize(
    "change",
    [
        "plan = 'no json'",
        "measurement = json_set(measurement, '$.input_share', json('1e999'))",
        "measurement = replace(measurement, '\"drift\":1.0', '\"input_share\":-Infinity')",
        "plan = '{}'",
        "outcome = 'splendid'",
        'measurement = \'{"warmup_s": [], "samples_s": []}\'',
        "created_at = 'yesterday'",
        pytest.param(f"plan = '{'[' * 5000}'", id="plan is nested too deeply"),
    ],
)
def test_a_damaged_row_is_corrupt(filled, change):
    execute(filled, f"UPDATE trials SET {change}")
    with (
        Store.open(str(filled)) as store,
        pytest.raises(StoreCorruptError, match="row cannot be read"),
    ):
        store.studies.all_trials()


@pytest.mark.parametrize(
    ("table", "change", "read"),
    [
        ("trials", "plan = '{}'", lambda store: store.studies.all_trials()),
        ("trials", "plan = '{}'", lambda store: store.studies.trials(1)),
        ("studies", "software = '[]'", lambda store: store.catalog.studies()),
        ("studies", "software = 'no json'", lambda store: store.catalog.study(1)),
    ],
)
def test_a_damaged_row_is_named_with_its_table(filled, table, change, read):
    """The story: nobody could tell which of some thousand it was."""
    execute(filled, f"UPDATE {table} SET {change}")
    said = rf"\({table} 1: .*\): restore a copy, or choose"
    with Store.open(str(filled)) as store, pytest.raises(StoreCorruptError, match=said):
        read(store)


def test_a_row_that_says_nothing_of_itself_is_found_by_another_command(filled):
    execute(filled, "UPDATE trials SET plan = 'no json'")
    said = r"\), ddlplan db check says which: restore a copy"
    with Store.open(str(filled)) as store, pytest.raises(StoreCorruptError, match=said):
        store.studies.all_trials()


@pytest.mark.parametrize(
    ("change", "read"),
    [
        (
            "UPDATE trials SET reason = CAST(x'ff41' AS TEXT)",
            lambda store: store.studies.all_trials(),
        ),
        ("UPDATE studies SET software = '[]'", lambda store: store.catalog.studies()),
        ("UPDATE nodes SET last_seen = x'00'", lambda store: store.catalog.machines()),
        (
            "INSERT INTO links VALUES (1, '2026-11-20T12:00:00Z', '[]', '[]', '{\"sums\": [1]}')",
            lambda store: store.machines.latest_links({}),
        ),
    ],
)
def test_damage_of_any_kind_is_one_error(filled, change, read):
    """Each was a traceback: most were found by bench/store_faults.py."""
    execute(filled, change)
    with Store.open(str(filled)) as store, pytest.raises(StoreCorruptError) as refused:
        read(store)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "code",
    [
        "CREATE TRIGGER other AFTER INSERT ON jobs BEGIN UPDATE jobs SET request = '{}'; END",
        "DROP TABLE plans; CREATE VIEW Plans AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL "
        "SELECT i + 1 FROM n) SELECT i AS id FROM n",
    ],
)
def test_a_database_that_brings_code_along_is_refused(filled, code):
    """The story: a trigger of somebody else's file chose what the next job would run, and a view
    was read for ever, with signals held back."""
    with closing(sqlite3.connect(filled)) as connection:
        connection.executescript(code)
    with pytest.raises(StoreCorruptError, match=r"it has the (trigger 'other'|view 'Plans'),"):
        Store.open(str(filled))


def test_a_schema_that_cannot_be_decoded_is_one_error(filled):
    content = filled.read_bytes()
    filled.write_bytes(content.replace(b"CREATE TABLE trials", b"CREATE TABLE \xd0rials"))
    with pytest.raises(StoreCorruptError), Store.open(str(filled)) as store:
        store.studies.all_trials()


def test_a_study_that_only_an_index_knows_is_corrupt(filled):
    """It was a traceback: found by bench/store_faults.py."""
    of_studies = "FROM sqlite_schema WHERE tbl_name = 'studies'"
    with closing(sqlite3.connect(filled)) as connection, connection:
        kept = connection.execute(f"SELECT * {of_studies}").fetchall()
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(f"DELETE {of_studies} AND type = 'index'")
        connection.execute(
            """UPDATE sqlite_schema SET sql = replace(sql, 'UNIQUE ("key", generation)',
            'CHECK (1)') WHERE name = 'studies'"""
        )
    with closing(sqlite3.connect(filled)) as connection, connection:
        connection.execute("DELETE FROM studies")  # of which the index hears nothing
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(f"DELETE {of_studies}")
        connection.executemany("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", kept)
    with Store.open(str(filled)) as store, pytest.raises(StoreCorruptError, match="in an index"):
        store.studies.begin_search(STUDY, fresh=False)
