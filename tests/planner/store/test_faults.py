"""Several programs, kills, full disks, foreign files: nothing is lost, errors are clear."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import shutil
import signal
import sqlite3
import stat
import tempfile
import time
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Thread

import pytest
from sqlalchemy import text
from store_cases import STUDY, trial

from planner.errors import (
    NoDatabaseError,
    StoreCorruptError,
    StoreLockedError,
    StoreNewerError,
    StoreUnwritableError,
)
from planner.store import Store
from planner.store.databases.migrations import STEPS, bring_up_to_date
from planner.store.databases.sqlite import SqliteDatabase

fork = multiprocessing.get_context("fork")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "planner.db"


@pytest.fixture
def filled(path):
    """A database with one trial in it."""
    with Store.open(str(path)) as store:
        store.studies.add_trial(store.studies.get_or_create(STUDY), trial(0))
    return path


def marks(url):
    with Store.open(str(url), create=False) as store:
        found = store.studies.all_trials()
    assert [one.number for one in found] == list(range(len(found)))
    return [one.result.parameters["mark"] for one in found]


def assert_intact(path):
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def write_trials(url, writer, count):
    with Store.open(str(url)) as store:
        study_id = store.studies.get_or_create(STUDY)
        for number in range(count):
            store.studies.add_trial(study_id, trial(100 * writer + number))


@pytest.mark.timeout(300)
def test_eight_tuners_that_start_at_once_lose_nothing_and_see_no_lock(database):
    # There are no tables yet, in SQLite no file either: they also race to make them.
    writers = [fork.Process(target=write_trials, args=(database.url, n, 20)) for n in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 8
    assert sorted(marks(database.url)) == [
        100 * writer + n for writer in range(8) for n in range(20)
    ]
    with Store.open(database.url) as store:
        assert {one.study_id for one in store.studies.all_trials()} == {1}
    if database.kind == "SQLite":
        assert_intact(database.url)


def open_when_told(url, gate):
    gate.wait()
    Store.open(url).close()


@pytest.mark.timeout(300)
def test_thirty_two_programs_make_the_tables_at_once(database):
    gate = fork.Event()
    makers = [fork.Process(target=open_when_told, args=(database.url, gate)) for _ in range(32)]
    for maker in makers:
        maker.start()
    gate.set()
    for maker in makers:
        maker.join()
    assert [maker.exitcode for maker in makers] == [0] * 32
    assert database.execute("SELECT count(*) FROM ddlplan_schema") == [(1,)]


def write_until_killed(url, pipe):
    with Store.open(str(url)) as store:
        study_id = store.studies.get_or_create(STUDY)
        number = len(store.studies.trials(study_id))
        while True:
            store.studies.add_trial(study_id, trial(number, samples=2000))
            os.write(pipe, b".")
            number += 1


@pytest.mark.timeout(300)
def test_finished_trials_survive_kill_9_at_any_moment_and_are_never_doubled(database):
    chance = random.Random(1)
    finished = 0
    for _ in range(12):
        reading, writing = os.pipe()
        writer = fork.Process(target=write_until_killed, args=(database.url, writing))
        writer.start()
        os.close(writing)
        acknowledged = os.read(reading, 1)  # it has begun
        time.sleep(chance.uniform(0, 0.05))
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        while more := os.read(reading, 4096):
            acknowledged += more
        os.close(reading)
        finished += len(acknowledged)
        stored = marks(database.url)
        # Killed between the commit and its report, one more may be there.
        assert finished <= len(stored) <= finished + 1
        assert stored == list(range(len(stored)))
        finished = len(stored)
        if database.kind == "SQLite":
            assert_intact(database.url)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
def test_only_the_owner_can_read_a_new_database_whatever_the_umask(path, mask):
    before = os.umask(mask)

    def write(connection):
        connection.execute(text("CREATE TABLE written (number INTEGER)"))
        journal = path.with_name("planner.db-journal")
        assert stat.S_IMODE(journal.stat().st_mode) == 0o600

    try:
        with Store.open(str(path)) as store:
            store._database.write(write)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_nothing_but_the_database_stays_when_it_is_closed(filled):
    assert [file.name for file in filled.parent.iterdir()] == ["planner.db"]


def test_the_journal_is_deleted_and_every_write_is_synced(filled):
    with Store.open(str(filled)) as store:
        found = [
            store._database.read(
                lambda connection, name=name: connection.execute(text(f"PRAGMA {name}")).scalar()
            )
            for name in ("journal_mode", "synchronous", "foreign_keys")
        ]
    assert found == ["delete", 3, 1]  # 3: EXTRA


def write_at_once(path, all_are_open, pipe, count):
    with Store.open(str(path)) as store:
        all_are_open.wait()
        for number in range(count):
            store.studies.add_trial(1, trial(number))
            os.write(pipe, b".")


def test_writers_that_come_at_once_have_their_turns_in_turn(filled):
    """SQLite's own wait let one of many write on and on, while others waited for seconds."""
    all_are_open = fork.Barrier(4)
    pipes = [os.pipe() for _ in range(4)]
    writers = [
        fork.Process(target=write_at_once, args=(filled, all_are_open, writing, 100))
        for _, writing in pipes
    ]
    for writer in writers:
        writer.start()
    # When one has written all of its trials, no other is far behind.
    writers[0].join()
    for reading, _ in pipes:
        os.set_blocking(reading, False)
        assert len(os.read(reading, 200)) >= 50
    for writer in writers:
        writer.join()
    for pipe in pipes:
        for end in pipe:
            os.close(end)
    assert len(marks(filled)) == 401


@contextmanager
def locked(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield


def test_a_database_that_stays_locked_is_one_error(filled):
    with Store.open(str(filled), lock_timeout_s=0.1) as store, locked(filled):
        with pytest.raises(StoreLockedError, match=r"planner\.db: .*locked.* 0\.1 s"):
            store.studies.add_trial(1, trial(1))
        with pytest.raises(StoreLockedError):
            store.plans.find()
        with pytest.raises(StoreLockedError):
            Store.open(str(filled), lock_timeout_s=0.1)
    assert marks(filled) == [0]


def test_a_short_lock_is_waited_for(filled):
    with closing(sqlite3.connect(filled, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        # A thread: a forked process would take over SQLite's belief that it holds the lock.
        writer = Thread(target=write_trials, args=(filled, 1, 1))
        writer.start()
        writer.join(0.3)
        assert writer.is_alive()
        connection.execute("COMMIT")
    writer.join(60)
    assert marks(filled) == [0, 100]


def test_a_reader_does_not_keep_a_writer_out(filled):
    with Store.open(str(filled), lock_timeout_s=0.5) as store:
        assert len(store.studies.all_trials()) == 1
        write_trials(filled, 1, 1)
        assert len(store.studies.all_trials()) == 2


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
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    before = path.read_bytes()
    with pytest.raises(StoreCorruptError, match="another program"):
        Store.open(str(path))
    assert path.read_bytes() == before


@pytest.mark.parametrize("kept", [100, 4096, 10000])
def test_a_database_that_was_cut_off_is_corrupt(filled, kept):
    os.truncate(filled, kept)
    with pytest.raises(StoreCorruptError):
        marks(filled)


def test_a_database_with_a_table_missing_is_corrupt(filled):
    with closing(sqlite3.connect(filled)) as connection:
        connection.execute("DROP TABLE plans")
    with Store.open(str(filled)) as store, pytest.raises(StoreCorruptError, match="plans"):
        store.plans.find()


@pytest.mark.parametrize(
    "change",
    [
        "plan = 'no json'",
        "plan = '[1]'",
        "plan = '{}'",
        "outcome = 'splendid'",
        'measurement = \'{"warmup_s": [], "samples_s": []}\'',
        "measurement = '{}'",
        "created_at = 'yesterday'",
    ],
)
def test_a_damaged_row_is_corrupt(filled, change):
    with closing(sqlite3.connect(filled)) as connection, connection:
        connection.execute(f"UPDATE trials SET {change}")
    with (
        Store.open(str(filled)) as store,
        pytest.raises(StoreCorruptError, match="row cannot be read"),
    ):
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
    ],
)
def test_damage_of_any_kind_is_one_error(filled, change, read):
    """Each was a traceback: found by bench/store_faults.py."""
    with closing(sqlite3.connect(filled)) as connection, connection:
        connection.execute(change)
    with Store.open(str(filled)) as store, pytest.raises(StoreCorruptError) as refused:
        read(store)
    assert "\n" not in str(refused.value)


def test_a_schema_that_cannot_be_decoded_is_one_error(filled):
    content = filled.read_bytes()
    filled.write_bytes(content.replace(b"CREATE TABLE trials", b"CREATE TABLE \xd0rials"))
    with pytest.raises(StoreCorruptError), Store.open(str(filled)) as store:
        store.studies.all_trials()


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(StoreUnwritableError, match="directory"):
        Store.open(str(tmp_path))


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(StoreUnwritableError, match="nowhere does not exist"):
        Store.open(str(tmp_path / "nowhere" / "planner.db"))


@pytest.mark.timeout(60)
def test_a_pipe_is_refused_without_waiting(path):
    os.mkfifo(path)
    with pytest.raises(StoreUnwritableError, match="no regular file"):
        Store.open(str(path))


def test_a_link_to_nothing_is_refused(path):
    path.symlink_to("elsewhere.db")
    with pytest.raises(StoreUnwritableError, match="link"):
        Store.open(str(path))
    assert not path.exists()


def test_a_name_that_is_too_long_is_refused(tmp_path):
    with pytest.raises(StoreUnwritableError, match="too long"):
        Store.open(str(tmp_path / ("a" * 300)))


@pytest.fixture
def foreign_folder():
    """A folder that only root may write, and us without root's rights."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to give up root's rights")
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    os.seteuid(65534)
    try:
        yield folder
    finally:
        os.seteuid(0)
        shutil.rmtree(folder)


def test_a_folder_without_permission_is_unwritable(foreign_folder):
    with pytest.raises(StoreUnwritableError, match="permission denied"):
        Store.open(str(foreign_folder / "planner.db"))


def test_a_database_that_may_only_be_read_can_be_read_and_not_written(foreign_folder):
    path = foreign_folder / "planner.db"
    os.seteuid(0)
    with Store.open(str(path)) as store:
        store.studies.add_trial(store.studies.get_or_create(STUDY), trial(0))
    path.chmod(0o644)
    os.seteuid(65534)
    with Store.open(str(path), create=False) as store:
        assert len(store.studies.all_trials()) == 1
        with pytest.raises(StoreUnwritableError, match="readonly"):
            store.studies.add_trial(1, trial(1))


def test_a_database_without_permission_to_read_is_unwritable(foreign_folder):
    path = foreign_folder / "planner.db"
    os.seteuid(0)
    Store.open(str(path)).close()
    os.seteuid(65534)
    with pytest.raises(StoreUnwritableError, match="unable to open"):
        Store.open(str(path), create=False)


def open_on_a_full_disk(path):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    with pytest.raises(StoreUnwritableError):
        Store.open(str(path))


def test_a_full_disk_leaves_no_empty_file_behind(path):
    opener = fork.Process(target=open_on_a_full_disk, args=(path,))
    opener.start()
    opener.join()
    assert opener.exitcode == 0
    assert list(path.parent.iterdir()) == []


def write_on_a_full_disk(path):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with Store.open(str(path)) as store:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        with pytest.raises(StoreUnwritableError):
            store.studies.add_trial(1, trial(1, samples=5000))


def test_a_disk_that_fills_up_loses_only_what_did_not_fit(filled):
    writer = fork.Process(target=write_on_a_full_disk, args=(filled,))
    writer.start()
    writer.join()
    assert writer.exitcode == 0
    assert marks(filled) == [0]
    assert_intact(filled)


def set_version(path, statement):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


@pytest.mark.parametrize("create", [True, False])
def test_a_database_of_a_newer_version_is_refused_and_left_as_it_was(filled, create):
    set_version(filled, "UPDATE ddlplan_schema SET version = 99")
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
    set_version(filled, statement)
    with pytest.raises(StoreCorruptError, match="version"):
        Store.open(str(filled))


def columns(path):
    with closing(sqlite3.connect(path)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return {
            table: connection.execute(f"PRAGMA table_info({table})").fetchall()
            for (table,) in tables.fetchall()
        }


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
        assert plan.begins_early is plan.use_case_digest is None
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
    with closing(sqlite3.connect(filled)) as connection:
        assert connection.execute("SELECT version FROM ddlplan_schema").fetchall() == [
            (len(STEPS) + 2,)
        ]
        assert connection.execute("SELECT count(*) FROM trials").fetchall() == [(1,)]
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
