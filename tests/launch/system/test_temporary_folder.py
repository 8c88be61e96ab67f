"""Temporary folders of processes that were killed are removed, and no other ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import gettempdir, mkdtemp

import pytest

from launch.system.temporary_folder import (
    TemporaryFolder,
    _lock,
    lock_for_processes,
    make_for_processes,
    make_of_same_name,
    remove_abandoned,
)

WAITS = "import sys; print(flush=True); sys.stdin.read()"
OWNER = """
import subprocess, sys
from launch.system.temporary_folder import TemporaryFolder
alone, shared = TemporaryFolder(sys.argv[1]), TemporaryFolder(sys.argv[1])
waits = "import sys; sys.stdin.read()"
subprocess.Popen([sys.executable, "-c", waits], pass_fds=shared.locks)
print(alone.path, shared.path, flush=True)
sys.stdin.read()
"""


def leave(folder: TemporaryFolder) -> Path:
    """Have a folder without an owner, as the kernel closes all that a killed one had open."""
    for descriptor in folder.locks:
        os.close(descriptor)
    return folder.path


def test_folder_of_a_killed_owner_is_removed_by_the_next_one_unless_a_program_still_has_it(
    tmp_path,
):
    """The story: each killed search left its folders in /tmp, hundreds on a test machine."""
    with TemporaryFolder(str(tmp_path)) as kept:
        owner = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert owner.stdin is not None
        assert owner.stdout is not None
        alone, shared = (Path(os.fsdecode(name)) for name in owner.stdout.readline().split())
        (alone / "worker0.log").touch()
        owner.kill()
        owner.wait()
        with TemporaryFolder(str(tmp_path)) as next_one:
            assert set(tmp_path.iterdir()) == {kept, shared, next_one}
        owner.stdin.close()  # which ends the program
        assert owner.stdout.read() == b""  # it has ended
        TemporaryFolder(str(tmp_path)).close()
        assert list(tmp_path.iterdir()) == [kept]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("reason", ["of another boot", "of another user", "a link", "not locked"])
def test_folder_that_may_be_in_use_stays(reason, tmp_path, monkeypatch):
    left = leave(TemporaryFolder(str(tmp_path)))
    (lock,) = left.iterdir()
    match reason:
        case "of another boot":  # as of another host that has the same /tmp
            lock.rename(left / ".owner-another")
        case "of another user":
            monkeypatch.setattr("os.geteuid", lambda: left.stat().st_uid + 1)
        case "a link":
            elsewhere = tmp_path / "elsewhere"
            left.rename(elsewhere)
            left.symlink_to(elsewhere)
        case "not locked":  # there can be no locks
            lock.rename(left / ".owner")
    (left / "file").touch()
    TemporaryFolder(str(tmp_path)).close()
    assert (left / "file").exists()


@pytest.mark.parametrize("remover", ["its owner", "who finds it"])
def test_folder_whose_removal_was_cut_short_is_removed_by_the_next_one(
    remover, tmp_path, monkeypatch
):
    """What said that nobody had it any more had gone, and the rest stayed for ever."""

    def remove_lock_alone(folder: Path, *, ignore_errors: bool) -> None:
        for lock in folder.glob(".owner-*"):
            lock.unlink()

    folder = TemporaryFolder(str(tmp_path))
    (folder.path / "worker0.log").touch()
    with monkeypatch.context() as killed:
        killed.setattr("launch.system.temporary_folder.shutil.rmtree", remove_lock_alone)
        if remover == "its owner":
            folder.close()
        else:
            leave(folder)
            remove_abandoned(tmp_path)
    (left,) = tmp_path.iterdir()
    assert [file.name for file in left.iterdir()] == ["worker0.log"]
    TemporaryFolder(str(tmp_path)).close()
    assert list(tmp_path.iterdir()) == []


def grow_old(folder: Path) -> None:
    two_hours_ago = time.time() - 2 * 3600
    os.utime(folder, (two_hours_ago, two_hours_ago))


def make_short() -> object:
    """Make the second folder of a script, where the name of the first is too long."""
    return make_of_same_name(Path("ddlplan-script-1"), Path(gettempdir()))


@pytest.mark.parametrize("make", [TemporaryFolder, make_for_processes, make_short])
def test_folder_that_a_killed_owner_was_just_making_is_removed_when_it_is_old(
    make, tmp_path, monkeypatch
):
    """The story: it had its name before its lock, as where there can be none, and stayed."""

    def be_killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with monkeypatch.context() as killed:
        killed.setattr("launch.system.temporary_folder._lock", be_killed)
        with pytest.raises(KeyboardInterrupt):
            make()
    (left,) = tmp_path.iterdir()
    remove_abandoned(tmp_path)
    assert list(tmp_path.iterdir()) == [left]  # it may be being made
    grow_old(left)
    remove_abandoned(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_owner_that_was_stopped_as_it_made_its_folder_has_another_one(tmp_path, monkeypatch):
    taken = []

    def lock_late(folder: Path, name: str) -> tuple[int, ...]:
        if not taken:
            taken.append(folder)
            grow_old(folder)
            remove_abandoned(tmp_path)
        return _lock(folder, name)

    monkeypatch.setattr("launch.system.temporary_folder._lock", lock_late)
    with TemporaryFolder(str(tmp_path)) as folder:
        assert list(tmp_path.iterdir()) == [folder]
        assert folder.name != taken[0].stem


@pytest.mark.parametrize("use", ["environment", "current folder"])
def test_folder_stays_while_a_process_that_was_not_given_its_lock_uses_it(use, tmp_path):
    """Scripts and peers start processes that outlive who started them and have no lock."""
    folder = Path(mkdtemp(prefix="ddlplan-script-", dir=tmp_path))
    (folder / "work" / "work").mkdir(parents=True)
    (folder / "work" / "work").chmod(0o000)  # as an overlay leaves it
    (lock,) = lock_for_processes(folder)
    is_named = use == "environment"
    user = subprocess.Popen(
        [sys.executable, "-c", WAITS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": f"{folder}/tmp"} if is_named else None,
        cwd=None if is_named else folder,
    )
    assert user.stdout is not None
    user.stdout.readline()  # it runs: while a program is being loaded, it has no environment
    os.close(lock)
    remove_abandoned(tmp_path)
    assert list(tmp_path.iterdir()) == [folder]
    user.communicate()
    remove_abandoned(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_no_file_in_a_folder_is_open_when_it_is_removed(tmp_path, monkeypatch):
    """NFS keeps a removed file that is open under another name, and its folder with it, for ever:
    what says that nobody has the folder any more had gone."""

    def open_files() -> Iterator[Path]:
        for entry in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):  # that of this list
                yield entry.readlink()

    def remove_as_on_nfs(folder: Path, *, ignore_errors: bool) -> None:
        if not any(file.is_relative_to(folder) for file in open_files()):
            remove(folder, ignore_errors=ignore_errors)

    remove = shutil.rmtree
    monkeypatch.setattr("launch.system.temporary_folder.shutil.rmtree", remove_as_on_nfs)
    leave(TemporaryFolder(str(tmp_path)))
    with TemporaryFolder(str(tmp_path)) as folder:
        assert list(tmp_path.iterdir()) == [folder]
    assert list(tmp_path.iterdir()) == []


def test_folder_is_made_and_removed_where_there_can_be_no_lock(tmp_path, monkeypatch):
    monkeypatch.setattr("launch.system.temporary_folder.read_boot_id", lambda: "")
    left = leave(TemporaryFolder(str(tmp_path)))
    with TemporaryFolder(str(tmp_path)) as other:
        assert sorted(tmp_path.iterdir()) == sorted([left, other])
        assert list(other.iterdir()) == []
    assert list(tmp_path.iterdir()) == [left]
