"""Errors of files name the file, and names are on the disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from launch.system.durable_files import (
    check_folder,
    explain_os_error,
    explain_write_error,
    make_folders,
    write_durably,
    write_in_place,
)
from launch.system.run_directory import RunDirectory, append_line
from tests.launch.small_files import files_of_at_most


def test_full_disk_names_the_file():
    """The story: "No space left on device" was all that a run said of its metrics."""
    with pytest.raises(OSError, match="/dev/full") as raised:
        append_line(Path("/dev/full"), b"{}\n")
    assert raised.value.errno == errno.ENOSPC
    assert explain_os_error(raised.value) == "/dev/full: no space left on device"


def test_a_line_is_whole_or_missing(tmp_path):
    """The story: on a full disk, half an epoch stood in front of the next."""
    path = tmp_path / "metrics.jsonl"
    append_line(path, b"first\n")
    with files_of_at_most(9), pytest.raises(OSError, match=r"metrics\.jsonl"):
        append_line(path, b"second\n")
    append_line(path, b"third\n")
    assert path.read_bytes() == b"first\nthird\n"


def test_error_in_the_middle_of_a_file_names_it(tmp_path):
    path = tmp_path / "new"
    with pytest.raises(OSError, match=str(path)), write_durably(path):
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("folder", "says"), [("missing", "there is no folder /"), ("x" * 300, "file name too long")]
)
def test_error_of_a_folder_is_explained_without_a_look_at_it(folder, says, tmp_path):
    """The story: asked whether a folder with too long a name is there, Python 3.11 raises."""
    path = tmp_path / folder / "new"
    with pytest.raises(OSError, match=folder) as raised, write_durably(path):
        pass
    assert explain_write_error(raised.value, path).startswith(says)


def test_a_pipe_is_written_to_and_not_replaced():
    """The story: as root, --html /dev/null put a file there, for everybody."""
    reading, writing = os.pipe()
    write_in_place(Path(f"/dev/fd/{writing}"), b"a page")
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b"a page"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("new/below", None),
        (".", None),
        ("file", "File exists"),
        ("file/below", "Not a directory"),
        ("link/below", "No such file"),
        ("x" * 300, "File name too long"),
    ],
)
def test_folder_that_cannot_be_made_is_told_without_making_any(name, says, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    before = sorted(tmp_path.iterdir())
    if says is None:
        check_folder(tmp_path / name)
    else:
        with pytest.raises(OSError, match=says):
            check_folder(tmp_path / name)
    assert sorted(tmp_path.iterdir()) == before


def test_names_of_new_folders_are_on_the_disk(tmp_path, monkeypatch):
    synced, sync = set(), os.fsync

    def record(file: int) -> None:
        synced.add(Path(f"/proc/self/fd/{file}").readlink())
        sync(file)

    monkeypatch.setattr(os, "fsync", record)
    make_folders(tmp_path / "a" / "b", mode=0o700)
    assert synced == {tmp_path, tmp_path / "a"}
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    synced.clear()
    run = RunDirectory.create(tmp_path / "runs")
    assert synced == {tmp_path, run.path.parent}
    synced.clear()
    make_folders(tmp_path / "a" / "b")
    assert synced == set()
