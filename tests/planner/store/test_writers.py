"""Programs that write at once, wait for one another and are killed: nothing is lost."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
import threading
import time
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from store_cases import STUDY, assert_intact, marks, trial, write_trials
from worth_cases import NODE

from launch.system.folder_queue import queued
from launch.system.session import defer_signals
from planner.errors import StoreLockedError
from planner.store import Store
from planner.store.databases.opening import open_database
from probes.hardware import DataSpeed

fork = multiprocessing.get_context("fork")


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
        with Store.open(database.url) as store:
            store.studies.get_or_create(STUDY)  # once a server is done with what was sent last
        stored = marks(database.url)
        # Killed between the commit and its report, one more may be there.
        assert finished <= len(stored) <= finished + 1
        assert stored == list(range(len(stored)))
        finished = len(stored)
        if database.kind == "SQLite":
            assert_intact(database.url)


def pids_in_a_queue():
    locks = Path("/proc/locks").read_text().splitlines()
    return {int(line.split()[5]) for line in locks if " -> FLOCK " in line}


def test_a_writer_waits_for_its_turn_while_another_has_it(filled):
    """SQLite's own wait let one of many write on and on, while others waited for seconds."""
    with queued(filled.parent, 60):
        writer = fork.Process(target=write_trials, args=(filled, 1, 1))
        writer.start()
        while writer.pid not in pids_in_a_queue():
            assert writer.is_alive(), "it wrote before its turn"
            time.sleep(0.01)
        assert marks(filled) == [0]
    writer.join()
    assert marks(filled) == [0, 100]


def save_data(path, folder):
    with Store.open(str(path)) as store:
        data = (DataSpeed(path=folder, file_system="ext4"),)
        store.machines.save_probe(replace(NODE, data=data))


def test_two_probes_at_once_lose_no_folder(filled):
    """Each added its own to what it had read before the other wrote."""
    with queued(filled.parent, 60):
        writers = [fork.Process(target=save_data, args=(filled, one)) for one in ("/a", "/b")]
        for writer in writers:
            writer.start()
        while not {writer.pid for writer in writers} <= pids_in_a_queue():
            assert all(writer.is_alive() for writer in writers), "one wrote before its turn"
            time.sleep(0.01)
    for writer in writers:
        writer.join()
    with Store.open(str(filled)) as store:
        assert store.machines.find_data_speed(NODE, "/a")
        assert store.machines.find_data_speed(NODE, "/b")


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


def test_ctrl_c_ends_the_wait_for_a_lock_though_it_is_deferred(filled):
    """The story: for two minutes nothing ended a search whose database was locked."""
    with Store.open(str(filled)) as store, locked(filled):
        began = time.monotonic()
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt), defer_signals():
            store.studies.add_trial(1, trial(1))
        assert time.monotonic() - began < 30
    assert marks(filled) == [0]


def test_a_short_lock_is_waited_for(filled):
    with closing(sqlite3.connect(filled, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        # A thread: a forked process would take over SQLite's belief that it holds the lock.
        writer = threading.Thread(target=write_trials, args=(filled, 1, 1))
        writer.start()
        writer.join(0.3)
        assert writer.is_alive()
        connection.execute("COMMIT")
    writer.join(60)
    assert marks(filled) == [0, 100]


def test_a_writer_that_waits_until_a_reader_has_ended_does_its_work_once(filled):
    """It began again every half second, and readers that came meanwhile kept it waiting."""
    begun = []

    def work(connection):
        begun.append(connection)
        connection.exec_driver_sql("DELETE FROM trials")

    database = open_database(str(filled), create=False)
    with closing(sqlite3.connect(filled, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM trials").fetchall() == [(1,)]
        writer = threading.Thread(target=database.write, args=(work,))
        writer.start()
        writer.join(1.5)
        assert writer.is_alive()
        reader.execute("COMMIT")
    writer.join(60)
    assert len(begun) == 1
    assert marks(filled) == []


def test_a_reader_does_not_keep_a_writer_out(filled):
    with Store.open(str(filled), lock_timeout_s=0.5) as store:
        assert len(store.studies.all_trials()) == 1
        write_trials(filled, 1, 1)
        assert len(store.studies.all_trials()) == 2
