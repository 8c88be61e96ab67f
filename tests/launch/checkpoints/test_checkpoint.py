"""Checkpoints on the disk: whole or not at all, whoever is killed and whatever is damaged."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from launch.checkpoints.broadcast import BroadcastCheckpoint
from launch.checkpoints.checkpoint import Checkpoint
from launch.checkpoints.folder import find_latest, list_checkpoints, read_manifest
from launch.checkpoints.manifest import Manifest
from launch.checkpoints.worker_part import WorkerPart
from launch.checkpoints.writer import CheckpointWriter
from launch.errors import CheckpointError
from launch.local_group.group import LocalThreadGroup
from tests.launch.small_files import files_of_at_most

MANIFEST = Manifest(
    use_case="tiny",
    step=0,
    epoch=0,
    position=0,
    samples=160,
    seed=7,
    global_batch=8,
    node_batches=(8,),
)


def part_of(step: int) -> WorkerPart:
    return WorkerPart({"weight": torch.full((1000,), step, dtype=torch.int64)}, {}, {"others": {}})


def open_writer(folder: Path) -> CheckpointWriter:
    (member,) = LocalThreadGroup.create([()])
    return CheckpointWriter(folder, member)


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "kept" / "here"


def write(folder: Path, *steps: int) -> list[Path]:
    writer = open_writer(folder)
    try:
        return [writer.save(partial(part_of, step), replace(MANIFEST, step=step)) for step in steps]
    finally:
        writer.close()


def weight_in(path: Path) -> int:
    with Checkpoint(path) as checkpoint:
        return checkpoint.model_state()["weight"].unique().item()


def test_the_newest_counts_and_the_last_two_are_kept(folder):
    paths = write(folder, 5, 100, 100_000_000, 123_456_789)
    assert sorted(folder.iterdir()) == [folder / ".lock", *sorted(paths[-2:])]
    found = find_latest(folder)
    assert (found.path, found.manifest.step, found.warnings) == (paths[-1], 123_456_789, ())
    assert weight_in(found.path) == 123_456_789


def test_weights_can_be_read_without_ddlplan(folder):
    (path,) = write(folder, 3)
    assert load_file(path / "weights-0.safetensors").keys() == {"weight"}


def test_only_the_user_can_read_them(folder):
    old = os.umask(0)
    try:
        (path,) = write(folder, 3)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.iterdir()} == {0o600}


def test_no_checkpoint_is_one_clear_error(folder):
    with pytest.raises(CheckpointError, match=r"^no checkpoint in .*: leave --resume out, or name"):
        find_latest(folder)


def truncate(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size - 2)


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-7] ^= 4
    file.write_bytes(content)


def empty(file: Path) -> None:
    file.write_bytes(b"")


DAMAGES = {"truncated": truncate, "flipped": flip_a_bit, "empty": empty, "gone": Path.unlink}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
@pytest.mark.parametrize(
    "file", ["weights-0.safetensors", "optimizer-0.safetensors", "manifest.json"]
)
def test_a_damaged_one_is_passed_over_with_a_warning(file, damage, folder):
    older, newer = write(folder, 1, 2)
    damage(newer / file)
    found = find_latest(folder)
    assert found.path == older
    (warning,) = found.warnings
    assert warning.startswith(f"checkpoint {newer} is passed over: ")
    damage(older / file)
    with pytest.raises(CheckpointError, match=r"^no usable checkpoint in .*: .*step-00000002 is "):
        find_latest(folder)


@pytest.mark.parametrize(
    "manifest",
    [
        *(b"[]", b"{}", b"null", b'{"schema_version": 1}', b"\xff", b'{"schema_version": "new"}'),
        b"[" * 100_000,
    ],
)
def test_a_manifest_that_is_none_is_passed_over(manifest, folder):
    older, newer = write(folder, 1, 2)
    (newer / "manifest.json").write_bytes(manifest)
    assert find_latest(folder).path == older


def test_a_file_elsewhere_is_not_read(folder):
    older, newer = write(folder, 1, 2)
    manifest = read_manifest(newer)
    elsewhere = replace(manifest.files[0], name=f"../{older.name}/weights-0.safetensors")
    (newer / "manifest.json").write_bytes(replace(manifest, files=(elsewhere,)).encode())
    assert find_latest(folder).path == older


def test_one_of_a_newer_ddlplan_is_no_reason_to_take_an_older_one(folder):
    _, newer = write(folder, 1, 2)
    values = json.loads((newer / "manifest.json").read_bytes())
    (newer / "manifest.json").write_text(json.dumps(values | {"schema_version": 3}))
    with pytest.raises(CheckpointError, match="schema_version=3 and this ddlplan reads up to 2"):
        find_latest(folder)


def unreadable(file: Path) -> None:
    """Have the kernel answer EIO to who reads a file, as it does for a disk that fails."""
    file.unlink()
    file.symlink_to("/proc/self/mem")


@pytest.mark.parametrize("name", ["manifest.json", "weights-0.safetensors"])
def test_file_that_cannot_be_read_now_is_no_damage(name, folder):
    """The story: a file server that did not answer (ESTALE, EIO) cost the newest checkpoints: they
    were passed over, and removed when the training that had gone on from an older one was kept."""
    older, newer = write(folder, 10, 20)
    manifest = read_manifest(newer)
    sizes = [replace(one, num_bytes=0) if one.name == name else one for one in manifest.files]
    (newer / "manifest.json").write_bytes(replace(manifest, files=tuple(sizes)).encode())
    unreadable(newer / name)
    with pytest.raises(CheckpointError) as refused:
        find_latest(folder)
    message = str(refused.value)
    assert f"checkpoint {newer}: " in message
    assert "cannot be read (Input/output error), which says nothing of its content: " in message
    assert "nothing was removed; try again when" in message
    if name == "manifest.json":  # of the others no content is read there
        write(folder, 15)
        assert newer.exists()
    assert older.exists()


def test_name_of_a_new_checkpoint_and_of_its_folders_is_on_the_disk(folder, monkeypatch):
    synced, sync = set(), os.fsync

    def record(file: int) -> None:
        synced.add(Path(f"/proc/self/fd/{file}").readlink())
        sync(file)

    monkeypatch.setattr(os, "fsync", record)
    write(folder, 1)
    assert {folder, folder.parent, folder.parent.parent} <= synced


def test_what_was_passed_over_goes_when_the_training_has_gone_on(folder):
    older, newer = write(folder, 10, 20)
    empty(newer / "weights-0.safetensors")
    (later,) = write(folder, 15)
    assert list_checkpoints(folder) == [later, older]


def test_a_damaged_one_is_made_again_under_its_name(folder):
    _, newer = write(folder, 10, 20)
    flip_a_bit(newer / "weights-0.safetensors")
    assert write(folder, 20) == [newer]
    assert find_latest(folder).warnings == ()


def test_there_is_one_at_every_moment_in_which_files_are_removed(folder, monkeypatch):
    """The story: one of the same step was removed before the new one had its name, so that whoever
    was killed meanwhile had none."""
    (path,) = write(folder, 20)
    found, remove = [], shutil.rmtree

    def look(*arguments, **options):
        found.append(list_checkpoints(folder))
        remove(*arguments, **options)

    monkeypatch.setattr(shutil, "rmtree", look)
    write(folder, 20)
    assert found
    assert found == [[path]] * len(found)
    assert sorted(folder.iterdir()) == [folder / ".lock", path]


def test_a_full_disk_costs_the_new_one_only(folder):
    (path,) = write(folder, 1)
    writer = open_writer(folder)
    limited = WorkerPart({"weight": torch.zeros(1 << 20)}, {}, {"others": {}})
    with (
        files_of_at_most(1 << 20),
        pytest.raises(CheckpointError, match=r"into .*: .*/weights-0.safetensors: file too large"),
    ):
        writer.save(lambda: limited, replace(MANIFEST, step=2))
    assert sorted(folder.iterdir()) == [folder / ".lock", path]
    writer.save(partial(part_of, 3), replace(MANIFEST, step=3))
    writer.close()
    assert find_latest(folder).manifest.step == 3


def test_two_jobs_cannot_write_into_one_folder(folder, monkeypatch):
    monkeypatch.setattr("launch.checkpoints.writer._LOCK_LIMIT_S", 0.0)
    first = open_writer(folder)
    with pytest.raises(CheckpointError, match="another job writes there: give each a folder"):
        open_writer(folder)
    first.close()
    open_writer(folder).close()


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="worker 0 cannot write a checkpoint into"):
        open_writer(tmp_path / "file" / "below")


def test_a_copy_that_cannot_be_written_is_one_clear_error(tmp_path):
    """The story: a host whose disk was full ended in a traceback, and left what it had copied."""
    (member,) = LocalThreadGroup.create([()])
    (tmp_path / "file").touch()
    rank = SimpleNamespace(is_equal=lambda _: False)
    copy = tmp_path / "file" / "copy"
    with (
        pytest.raises(CheckpointError, match=r"^the checkpoint cannot be copied: .*/file/copy: "),
        BroadcastCheckpoint(tmp_path / "none", copy, member, rank, is_source=False),
    ):
        raise AssertionError("it was copied")


class Sender:
    """A rank through which a checkpoint comes with other bytes in its files."""

    def __init__(self, path: Path) -> None:
        document = np.frombuffer((path / "manifest.json").read_bytes(), np.uint8)
        self._left = [np.array([len(document)]).view(np.uint8), document]

    def is_equal(self, _: int) -> bool:
        return False

    def broadcast_array(self, content: np.ndarray, *, is_source: bool) -> None:
        content[:] = self._left.pop(0)

    def broadcast(self, num_bytes: int, *, is_source: bool) -> Iterator[np.ndarray]:
        yield np.zeros(num_bytes, np.uint8)


def test_a_file_that_cannot_be_read_for_a_copy_is_named(folder):
    """The story: the error named the copy, which that host does not need, and said to make room."""
    (path,) = write(folder, 3)
    (member,) = LocalThreadGroup.create([()])
    unreadable(path / "weights-0.safetensors")
    said = f"the checkpoint cannot be read: {path}/weights-0.safetensors: input/output error"
    with (
        pytest.raises(CheckpointError, match=f"^{said}$"),
        BroadcastCheckpoint(path, folder / "copy", member, Sender(path), is_source=True),
    ):
        raise AssertionError("it was read")


def test_a_copy_that_is_not_what_was_sent_is_removed(folder):
    """The story: it stayed in the folder of the run."""
    (path,) = write(folder, 3)
    (member,) = LocalThreadGroup.create([()])
    copy = folder / "copy"
    with (
        pytest.raises(CheckpointError, match=r"-0.safetensors is damaged: its content is not what"),
        BroadcastCheckpoint(path, copy, member, Sender(path), is_source=False),
    ):
        raise AssertionError("it was taken")
    assert not copy.exists()


KILLS = """
import os, random, signal, sys, time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
import torch
from test_checkpoint import MANIFEST, find_latest, open_writer, part_of, weight_in, write

torch.set_num_threads(1)
random.seed(1)
folder, last = Path(sys.argv[1]), 1
write(folder, last)
for _ in range(40):
    heard, saying = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(heard)
        writer = open_writer(folder)
        for step in range(last + 1, last + 1000):
            writer.save(partial(part_of, step), replace(MANIFEST, step=step))
            os.write(saying, b".")
        os._exit(0)
    os.close(saying)
    assert os.read(heard, 1)  # it writes the next one now
    time.sleep(random.uniform(0, 0.02))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found = find_latest(folder)
    assert found.manifest.step >= last
    assert not found.warnings, found.warnings
    assert weight_in(found.path) == found.manifest.step
    last = found.manifest.step
    os.close(heard)
write(folder, last + 1)
assert len(os.listdir(folder)) == 3, os.listdir(folder)
print(last)
"""


@pytest.mark.long
def test_whenever_the_writer_is_killed_a_whole_one_is_there(folder):
    places = [*map(str, Path(__file__).parents[:2]), *sys.path]
    done = subprocess.run(
        [sys.executable, "-c", KILLS, str(folder)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(places)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 40


def test_checkpoints_of_another_training_are_not_written_over_where_nobody_looked(folder):
    """The story: the folder was looked at on the machine that starts the job, and written on the
    first host, where a longer training was kept: its checkpoints counted as left over."""
    write(folder, 50)
    (member,) = LocalThreadGroup.create([()])
    with pytest.raises(CheckpointError, match=r"step-0*50: go on with --resume"):
        CheckpointWriter(folder, member, is_resumed=False)
    assert len(list_checkpoints(folder)) == 1
