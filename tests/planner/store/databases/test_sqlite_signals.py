"""A Ctrl-C in the middle of a transaction: it is raised after it, and nothing is left locked."""

from __future__ import annotations

import fcntl
import os
import signal
import time

import pytest
from sqlalchemy import text

from planner.store.databases.sqlite import SqliteDatabase
from tests.ctrl_c import run_with_ctrl_c

STRIDE = 7
"""Between the moments of a transaction that are tried, in lines: it has about 2,000."""


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "planner.db"
    path.touch()
    opened = SqliteDatabase(path, lock_timeout_s=0.05)
    opened.write(lambda connection: connection.execute(text("CREATE TABLE kept (number INTEGER)")))
    return opened


def insert(connection):
    connection.execute(text("INSERT INTO kept VALUES (1)"))


def count(connection):
    return connection.execute(text("SELECT count(*) FROM kept")).scalar()


def is_free(folder):
    """Whether a writer that comes now has its turn, in ten seconds at the latest."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        for _ in range(1000):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.01)
            else:
                return True
        return False
    finally:
        os.close(descriptor)


def test_what_is_stored_while_a_ctrl_c_is_handled_does_not_wait_for_itself(database, tmp_path):
    written = 0
    for moment in range(1, 10_000, STRIDE):
        before = database.read(count)
        try:
            was_reached = run_with_ctrl_c(lambda: database.write(insert), moment)
        except KeyboardInterrupt:  # whose traceback keeps what the transaction had
            database.write(insert)
            assert database.read(count) - before in (1, 2)
            written += 1
        else:
            assert not was_reached
            break
    assert written > 20
    assert is_free(tmp_path)


def test_transaction_is_whole_before_ctrl_c_is_raised(database):
    def work(connection):
        signal.raise_signal(signal.SIGINT)
        insert(connection)

    with pytest.raises(KeyboardInterrupt):
        database.write(work)
    assert database.read(count) == 1
