"""Keys of requests."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from planner.errors import ConflictError, RunDirectoryError
from planner.service.endpoints.repeats import start_once
from tests.launch.small_files import files_of_at_most


@pytest.fixture(autouse=True)
def _in_own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_key_is_known_for_a_day_and_then_makes_room():
    assert start_once("a", {}, lambda: 1, db="planner.db") == 1
    assert start_once("a", {}, lambda: 2, db="planner.db") == 1
    (file,) = Path("jobs/.keys").iterdir()
    yesterday = time.time() - 25 * 3600
    os.utime(file, (yesterday, yesterday))
    assert start_once("b", {}, lambda: 3, db="planner.db") == 3
    assert len(list(Path("jobs/.keys").iterdir())) == 1


def test_key_that_cannot_be_stored_starts_nothing_and_says_why():
    Path("jobs").write_text("no folder")
    with pytest.raises(RunDirectoryError, match="for the keys of requests"):
        start_once("a", {}, lambda: 1, db="planner.db")


def test_key_that_finds_no_room_starts_nothing_and_may_be_sent_again():
    """The story: a full disk counted as a bug of ddlplan, and the key could not be used again."""
    started: list[int] = []

    def start() -> int:
        started.append(1)
        return len(started)

    with files_of_at_most(0), pytest.raises(RunDirectoryError, match="make room there"):
        start_once("a", {}, start, db="planner.db")
    assert started == []
    assert start_once("a", {}, start, db="planner.db") == 1
    with files_of_at_most(64):  # for what the request says, and not for the number
        assert start_once("b", {}, start, db="planner.db") == 2
    with pytest.raises(ConflictError, match="is not answered"):
        start_once("b", {}, start, db="planner.db")
    assert len(started) == 2


def test_key_of_a_request_that_fails_at_that_moment_is_not_answered():
    """The story: another one of that key was answered with an error 500."""
    assert start_once("a", {}, lambda: 1, db="planner.db") == 1
    (file,) = Path("jobs/.keys").iterdir()
    file.unlink()
    file.symlink_to("gone")  # there when it is to be made, and gone when it is read
    with pytest.raises(ConflictError, match="is not answered"):
        start_once("a", {}, lambda: 2, db="planner.db")
