"""Files of databases: who may read them, where they may lie, and disks that are full."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

import pytest
from sqlalchemy import text
from store_cases import assert_intact, marks, trial, write_trials

from planner.errors import StoreUnwritableError
from planner.store import Store
from tests.launch.small_files import files_of_at_most


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


def test_the_journal_is_deleted_and_every_write_is_synced(filled):
    with Store.open(str(filled)) as store:
        found = [
            store._database.read(
                lambda connection, name=name: connection.execute(text(f"PRAGMA {name}")).scalar()
            )
            for name in ("journal_mode", "synchronous", "foreign_keys")
        ]
    assert found == ["delete", 3, 1]  # 3: EXTRA


def test_a_directory_and_a_name_that_is_too_long_are_refused(tmp_path):
    for name, reason in (("", "directory"), ("a" * 300, "too long")):
        with pytest.raises(StoreUnwritableError, match=reason):
            Store.open(str(tmp_path / name))


@pytest.mark.parametrize("create", [True, False])
def test_a_missing_folder_is_named(tmp_path, create):
    with pytest.raises(StoreUnwritableError, match="nowhere does not exist"):
        Store.open(str(tmp_path / "nowhere" / "planner.db"), create=create)


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
    write_trials(path)
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


def test_a_full_disk_leaves_no_empty_file_behind(path):
    with files_of_at_most(0), pytest.raises(StoreUnwritableError):
        Store.open(str(path))
    assert list(path.parent.iterdir()) == []


def test_a_disk_that_fills_up_loses_only_what_did_not_fit(filled):
    full = files_of_at_most(4096)
    with Store.open(str(filled)) as store, full, pytest.raises(StoreUnwritableError):
        store.studies.add_trial(1, trial(1, samples=5000))
    assert marks(filled) == [0]
    assert_intact(filled)
