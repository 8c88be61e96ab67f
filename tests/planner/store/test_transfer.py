"""Everything is copied from a database to an empty one, as it was, or nothing is."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import signal
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import sample_plan
from sample_plan import NOON
from store_cases import STUDY, execute, trial
from sweep_samples import sample_point, sample_record
from training_samples import JOB
from worth_cases import NODE

from planner.errors import ConflictError, NoDatabaseError, StoreCorruptError
from planner.records.job_record import JobState
from planner.store import Store
from planner.store import transfer as transfers
from planner.store.databases.sqlite import SqliteDatabase
from planner.store.inspection import check_database, inspect_database
from planner.store.transfer import copy_database

fork = multiprocessing.get_context("fork")


@pytest.fixture(autouse=True)
def _few_rows_at_once(monkeypatch):
    monkeypatch.setattr(transfers, "_ROWS_AT_ONCE", 7)


@pytest.fixture
def other(request, database, tmp_path):
    """An empty database of the other kind."""
    if database.kind == "PostgreSQL":
        return str(tmp_path / "other.db")
    return request.getfixturevalue("postgres").empty_database()


@pytest.fixture(scope="module")
def filled_file(tmp_path_factory):
    """A SQLite database as `fill` makes it."""
    file = tmp_path_factory.mktemp("filled") / "planner.db"
    fill(str(file))
    return file


@pytest.fixture
def filled(database, filled_file):
    """A database of either kind as `fill` makes it."""
    if database.kind == "SQLite":
        shutil.copy(filled_file, database.url)
    else:
        fill(database.url)
    return database


@pytest.fixture
def path(filled_file, tmp_path):
    """A file of a SQLite database as `fill` makes it."""
    return shutil.copy(filled_file, str(tmp_path / "planner.db"))


def fill(url):
    """Put something into every table that a search or a sweep fills, and remove a plan."""
    with Store.open(url, now=lambda: NOON + timedelta(microseconds=7)) as store:
        store.machines.save_probe(NODE)
        study_id = store.studies.get_or_create(STUDY)
        odd = replace(trial(0), parameters={"é\0\udc80": "\ud83d", "x": 0.1 + 0.2}, reason="a\0b")
        for result in (odd, *(trial(number) for number in range(1, 30))):
            store.studies.add_trial(study_id, result)
        for _ in range(3):
            last = store.plans.save(replace(sample_plan.FOUND, study_id=study_id))
        store.plans.remove(last)
        store.jobs.add(replace(JOB, is_detached=False, state=JobState.RUNNING))
        sweep = store.sweeps.begin(sample_record([32]), fresh=False).record
        store.sweeps.add_points(sweep.id, sample_point(32))


def everything(url):
    with Store.open(url, create=False) as store:
        return (
            store.studies.all_trials(),
            store.plans.find(),
            store.catalog.machines(),
            store.catalog.studies(),
            store.jobs.find(),
            store.sweeps.get(1),
            store.events.after(0),
        )


def test_all_of_it_comes_over_in_either_direction(filled, other):
    copied = {table.name: table.rows for table in copy_database(filled.url, other)}
    assert everything(other) == everything(filled.url)
    assert (copied["trials"], copied["plans"], copied["probes"]) == (30, 2, 1)
    assert check_database(other).faults == ()
    assert check_database(other).rows == check_database(filled.url).rows == sum(copied.values())


def test_numbers_go_on_after_the_highest_there_ever_was(filled, other):
    """A plan that was removed had a number that somebody may have written down."""
    copy_database(filled.url, other)
    with Store.open(other) as store:
        assert store.plans.save(sample_plan.FOUND) == 4
        assert store.studies.add_trial(1, trial(30)).id == 31
        assert store.studies.begin_afresh(STUDY) == 2
        assert len(store.studies.trials(1)) == 31


def test_a_database_that_holds_something_is_no_target(filled, other):
    with Store.open(other) as store:
        study_id = store.studies.get_or_create(STUDY)
    with pytest.raises(ConflictError, match=r"it has .*studies.* already"):
        copy_database(filled.url, other)
    with pytest.raises(ConflictError):
        copy_database(filled.url, filled.url)
    with Store.open(other) as store:
        assert store.studies.trials(study_id) == []


def test_tables_without_rows_are_a_target(filled, other):
    Store.open(other).close()
    assert [table.rows for table in copy_database(filled.url, other) if table.name == "plans"] == [
        2
    ]


def test_a_source_that_is_not_there_makes_no_target(tmp_path):
    with pytest.raises(NoDatabaseError):
        copy_database(str(tmp_path / "none.db"), str(tmp_path / "new.db"))
    assert list(tmp_path.iterdir()) == []


def test_a_row_that_cannot_be_read_copies_nothing(path, tmp_path, postgres):
    execute(path, "UPDATE trials SET plan = '{' WHERE id = 25")
    for place in (str(tmp_path / "target.db"), postgres.empty_database()):
        with pytest.raises(StoreCorruptError, match=r"trials: a row cannot be read.*db check"):
            copy_database(path, place)
        with pytest.raises(NoDatabaseError):
            Store.open(place, create=False)
    assert [file.name for file in tmp_path.iterdir()] == ["planner.db"]


def copy_some(source, target, pipe):
    """Copy ten tables, say so, and stay in the midst of it."""
    whole, copied = transfers._copy, []

    def copy(given, connection, table):
        rows = whole(given, connection, table)
        copied.append(table)
        if len(copied) == 10:
            os.write(pipe, b".")
            time.sleep(600)
        return rows

    transfers._copy = copy
    copy_database(source, target)


def test_a_copy_that_is_killed_leaves_the_target_without_anything(filled, other):
    reading, writing = os.pipe()
    copier = fork.Process(target=copy_some, args=(filled.url, other, writing))
    copier.start()
    os.close(writing)
    assert os.read(reading, 1) == b"."
    os.kill(copier.pid, signal.SIGKILL)
    copier.join()
    os.close(reading)
    if filled.kind == "SQLite":
        # The server may still be at work on what it was sent last: its lock says when it is over.
        with Store.open(other) as store:
            assert store.studies.all_trials() == store.plans.find() == []
    else:
        with pytest.raises(NoDatabaseError):
            Store.open(other, create=False)
    copy_database(filled.url, other)
    assert everything(other) == everything(filled.url)


def test_what_a_database_is_and_holds(filled):
    found = inspect_database(filled.url)
    assert found.kind.partition(" ")[0] == filled.kind
    assert found.size_bytes > 20_000
    rows = {table.name: (table.rows, table.changed_at) for table in found.tables}
    assert rows["trials"] == (30, NOON + timedelta(microseconds=7))
    assert rows["links"] == (0, None)


@pytest.mark.parametrize(
    ("change", "faults"),
    [
        ("UPDATE trials SET plan = '{}' WHERE id = 7", ["trials 7: cannot be read: .*"]),
        (
            "UPDATE trials SET created_at = 'now' WHERE id IN (7, 9)",
            ["trials 7: .*", "trials 9: .*"],
        ),
        ("UPDATE plans SET throughput = '[1]' WHERE id = 2", ["plans 2: .*"]),
        ("UPDATE jobs SET state = 'odd'", ["jobs 1: .*"]),
        ("UPDATE events SET topic = 'odd' WHERE id = 3", ["events 3: .*"]),
        ("UPDATE studies SET software = '[]'", ["studies 1: cannot be read: .*"]),
        ("UPDATE studies SET facts = '{}'", []),  # of another release: it counts as none
        ("INSERT INTO usage VALUES (1, 9, 'vm', '[]')", ["usage 1: cannot .*", "usage 1: train.*"]),
        ("DELETE FROM trials WHERE id = 7", ["studies 1: 29 trials, numbered up to 30"]),
        (
            "UPDATE studies SET finished_trials = 31",
            ["studies 1: finished_trials=31, but it has 30 trials"],
        ),
    ],
)
def test_each_fault_is_a_line(path, change, faults):
    assert check_database(path).faults == ()
    execute(path, change)
    assert_faults(path, faults)


def test_each_fault_of_a_server_is_a_line(postgres):
    url = postgres.empty_database()
    fill(url)
    assert check_database(url).faults == ()
    postgres.execute("UPDATE trials SET created_at = 'now' WHERE id IN (7, 9)", url)
    postgres.execute("UPDATE plans SET throughput = '[1]' WHERE id = 2", url)
    postgres.execute("UPDATE jobs SET state = 'odd'", url)
    postgres.execute("DELETE FROM trials WHERE id = 8", url)
    numbers = "studies 1: 29 trials, numbered up to 30"
    assert_faults(url, ["jobs 1: .*", "plans 2: .*", numbers, "trials 7: .*", "trials 9: .*"])


def assert_faults(url, expected):
    found = sorted(check_database(url).faults)
    assert len(found) == len(expected)
    for said, one in zip(found, expected, strict=True):
        assert re.fullmatch(one, said)


def test_a_row_that_is_removed_meanwhile_is_no_fault(path, monkeypatch):
    """Once numbers and rows were read in two transactions, and a row that another program had
    removed between them could not be found."""
    with Store.open(path) as store:
        left = [store.plans.save(sample_plan.FOUND) for _ in range(40)]
        read = SqliteDatabase.read

        def read_and_let_another_remove_a_plan(database, work):
            found = read(database, work)
            with monkeypatch.context() as unchanged:
                unchanged.setattr(SqliteDatabase, "read", read)
                store.plans.remove(left.pop())
            return found

        monkeypatch.setattr(SqliteDatabase, "read", read_and_let_another_remove_a_plan)
        assert check_database(path).faults == ()


def test_a_reference_to_a_row_that_is_gone_is_a_fault(path):
    execute(path, "UPDATE plans SET study_id = 9 WHERE id = 1")  # without foreign keys
    assert check_database(path).faults == ("plans 1: study_id=9, which is not in studies",)


def test_damage_that_sqlite_finds_is_a_fault(path):
    query = "SELECT rootpage FROM sqlite_master WHERE name = 'jobs_of_machine'"
    ((page,),) = execute(path, query)
    content = bytearray(Path(path).read_bytes())
    content[4096 * (page - 1) + 3 : 4096 * (page - 1) + 5] = b"\0\0"  # an index without entries
    Path(path).write_bytes(content)
    assert any("jobs_of_machine" in fault for fault in check_database(path).faults)
