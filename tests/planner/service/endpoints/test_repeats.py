"""Keys of requests."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from planner.errors import RunDirectoryError
from planner.service.endpoints.repeats import start_once


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
