"""The file system of a database is known, and its name is on the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from planner.api import LaunchRequest, launch, make_workload, probe
from planner.api.scripts.recording import begin_row
from planner.errors import NoPlanError, StoreUnwritableError, StoreUrlError
from planner.store import find_hazard
from planner.store.databases.location import (
    check_writable,
    create_private,
    find_above,
    find_network_file_system,
    whole_name,
)


def test_whole_name_is_of_the_same_database_in_every_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for url in ("a b.db", "./a b.db", "sqlite:///a b.db", str(tmp_path / "a b.db")):
        assert whole_name(url) == str(tmp_path / "a b.db")
    server = "postgresql+psycopg://lab@host/plans"
    assert whole_name(server) == server
    with pytest.raises(StoreUrlError):
        whole_name("mysql://host/plans")


@pytest.fixture
def remote_db(tmp_path, monkeypatch) -> str:
    """A database that is not there yet, in a folder of a file server."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"22 1 0:21 / / rw - ext4 /dev/vda1 rw\n30 22 0:9 / {tmp_path} rw - nfs4 f:/ rw"
    )
    found = find_network_file_system
    monkeypatch.setattr(
        "planner.store.databases.opening.find_network_file_system", lambda path: found(path, mounts)
    )
    return str(tmp_path / "planner.db")


class Heard(list[str]):
    """The lines of all reports."""

    def __call__(self, report, _host=None) -> None:
        if hasattr(report, "message"):
            self.append(report.message)


def test_database_on_a_network_file_system_is_warned_of_once(remote_db):
    """The story: two hosts wrote to one file over NFS, whose locks did not hold."""
    heard = Heard()
    probe(db=remote_db, quick=True, listener=heard)
    assert heard == [find_hazard(remote_db)]
    assert "is on a network file system (nfs4), where SQLite's locks may fail" in heard[0]


def test_training_that_is_recorded_on_a_network_file_system_is_warned_of_it(remote_db):
    """Searches alone were, though each training writes there every other second."""
    request, heard = LaunchRequest(workload=make_workload("simplebig")), Heard()
    with pytest.raises(NoPlanError):
        launch(request, db=remote_db, listener=heard)
    assert heard == [find_hazard(remote_db)]
    heard = Heard()
    assert begin_row("script:python train.py", [], 1.0, remote_db, heard) is None
    assert heard[0] == find_hazard(remote_db)


def test_name_of_a_new_database_is_on_the_disk(tmp_path, monkeypatch):
    synced, sync = [], os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: (synced.append(os.fstat(file).st_ino), sync(file))
    )
    create_private(tmp_path / "planner.db")
    assert tmp_path.stat().st_ino in synced


def test_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    """It was called "."."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    with pytest.raises(StoreUnwritableError, match=f"planner.db: {tmp_path} cannot be written"):
        check_writable(Path("planner.db"))


def test_nearest_file_of_the_name_above_is_found_up_to_the_home_folder(tmp_path, monkeypatch):
    below = tmp_path / "home" / "lab" / "below"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "planner.db").touch()  # above the home folder
    assert find_above(Path("planner.db")) is None
    (tmp_path / "home" / "planner.db").touch()
    assert find_above(Path("planner.db")) == Path("../../planner.db")
    (tmp_path / "home" / "lab" / "planner.db").mkdir()
    assert find_above(Path("planner.db")) == Path("../../planner.db")
    for other in ("other.db", "here/planner.db", str(below / "planner.db")):
        assert find_above(Path(other)) is None
    monkeypatch.chdir(tmp_path / "home")
    assert find_above(Path("planner.db")) is None
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
    assert find_above(Path("planner.db")) == Path("../planner.db")
