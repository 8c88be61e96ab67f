"""Working folder of a script: a folder without a private view is refused with the way out."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from launch.errors import ScriptError
from launch.scripts.private_view import has_mounts_below
from launch.scripts.working_folder import _can_cover, open_working_folder

OWNER = """
import sys
from pathlib import Path
from launch.scripts.working_folder import open_working_folder
with open_working_folder(Path(sys.argv[1]), in_place=True) as view:
    print(view.temporary, flush=True)
    sys.stdin.read()
"""


def test_folder_that_holds_the_temporary_files_is_told_by_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It was told that it has no overlay and more than 512 MiB, and was empty."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    with pytest.raises(ScriptError) as refused, open_working_folder(tmp_path):
        pass
    assert str(refused.value) == (
        f"folder {tmp_path} holds that of temporary files, {temporary}: set TMPDIR to a folder "
        "outside of it, or pass --in-place where the script may write"
    )
    with open_working_folder(tmp_path, in_place=True) as view:
        assert view.path == tmp_path
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("name", ["gone", "x" * 50])
def test_place_for_temporary_files_that_cannot_be_written_is_refused_in_a_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Where /tmp could not be written, a long TMPDIR was a bug of ddlplan."""
    (tmp_path / ("x" * 50)).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / name))
    monkeypatch.setattr("launch.scripts.working_folder._SHORT_FOLDER", str(tmp_path / "gone"))
    with (
        pytest.raises(ScriptError, match=r"gone/ddlplan-.*: set TMPDIR to one .* at most 47 bytes"),
        open_working_folder(tmp_path, in_place=True),
    ):
        pass
    assert list((tmp_path / ("x" * 50)).iterdir()) == []


def test_sockets_have_room_in_the_folder_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Where TMPDIR had some 50 letters, scripts with a fork server failed in trials alone."""
    (tmp_path / ("x" * 50)).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ("x" * 50)))
    with open_working_folder(tmp_path, in_place=True) as view, socket.socket(socket.AF_UNIX) as one:
        (view.temporary / "pymp-12345678").mkdir()
        one.bind(str(view.temporary / "pymp-12345678" / "listener-12345678"))
    assert not view.temporary.exists()


@pytest.mark.parametrize("name", ["", "x" * 50])
def test_folders_of_a_killed_command_are_removed_by_the_next_one(
    name: str, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
):
    """They stayed for ever where its supervisor was killed as well."""
    place = temporary / name
    place.mkdir(exist_ok=True)
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)],
        env={**os.environ, "TMPDIR": str(place)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert owner.stdout is not None
    left = Path(os.fsdecode(owner.stdout.readline().strip()))
    owner.kill()
    owner.communicate()
    assert list(place.iterdir()) != []  # that in /tmp is removed by any test that makes one
    monkeypatch.setattr("tempfile.tempdir", str(place))
    with open_working_folder(tmp_path, in_place=True) as view:
        assert not left.exists()
        assert list(place.iterdir()) == [view.private[0]]
    assert list(place.iterdir()) == []


def test_what_is_no_file_is_left_out_of_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder with a socket or a named pipe was a bug of ddlplan where there is no overlay."""
    folder = tmp_path / "training"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "train.py").write_text("1")
    os.mkfifo(folder / "data" / "pipe")
    (folder / "gone").symlink_to("nowhere")
    monkeypatch.setattr("launch.scripts.working_folder._can_cover", lambda *_: False)
    with open_working_folder(folder) as view:
        assert view.path != folder
        assert sorted(p.name for p in view.path.rglob("*")) == ["data", "gone", "train.py"]


def test_folder_that_cannot_be_copied_is_refused_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "training"
    folder.mkdir()
    (folder / "checkpoint.pt").write_text("1")

    def vanish(*_: object) -> bool:  # between the decision to copy and the copy
        (folder / "checkpoint.pt").unlink()
        folder.rmdir()
        return False

    monkeypatch.setattr("launch.scripts.working_folder._can_cover", vanish)
    with (
        pytest.raises(ScriptError, match=r"cannot be copied .*training.*--in-place"),
        open_working_folder(folder),
    ):
        pass


def test_folder_is_copied_up_to_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "training"
    folder.mkdir()
    (folder / "data").touch()
    os.truncate(folder / "data", 1 << 20)
    monkeypatch.setattr("launch.scripts.working_folder._can_cover", lambda *_: False)
    monkeypatch.setattr("launch.scripts.working_folder._MOST_COPIED_BYTES", 1 << 20)
    with open_working_folder(folder) as view:
        assert (view.path / "data").stat().st_size == 1 << 20
    os.truncate(folder / "data", (1 << 20) + 1)
    with (
        pytest.raises(ScriptError, match=r"more than 1 MiB to copy: pass --in-place"),
        open_working_folder(folder),
    ):
        pass


def test_mount_below_a_folder_is_seen_in_any_alphabet(tmp_path: Path):
    """Where its name has a space, letters beyond Latin were lost, and the mount was hidden."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text("36 35 98:0 / /данные/my\\040disk rw - ext4 /dev/sda rw\n")
    assert has_mounts_below("/данные", mounts)
    assert has_mounts_below("/данные/", mounts)
    assert not has_mounts_below("/данные/my disk", mounts)


def test_folder_is_covered_where_the_kernel_can(tmp_path: Path):
    folder, *layers = (tmp_path / name for name in ("training", "upper", "work"))
    for made in (folder, *layers):
        made.mkdir()
    can_cover = _can_cover(folder, (layers[0], layers[1]))
    with open_working_folder(folder) as view:
        assert (view.layers is not None, view.path == folder) == (can_cover, can_cover)
