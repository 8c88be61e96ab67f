"""Decoded pictures lie in one file that all processes share, whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from launch.data.disk_space import find_disk_shortage
from launch.data.pixel_file import PixelFile
from launch.data.pixel_layout import PixelLayout
from launch.errors import UseCaseError

LAYOUT = PixelLayout(name="data train", key="1", shape=(4, 6, 3), count=1500)
PICTURE = np.arange(72, dtype=np.uint8).reshape(4, 6, 3)


def test_written_picture_is_read_by_every_process():
    writer, reader = PixelFile(LAYOUT), PixelFile(LAYOUT)
    assert not reader.is_valid(1499)
    writer.write(1499, PICTURE)
    assert reader.is_valid(1499)
    assert not reader.is_valid(1498)
    assert reader.pixels[1499].tolist() == PICTURE.reshape(-1).tolist()


def test_file_is_private_and_has_its_room_on_the_disk_from_the_start():
    PixelFile(LAYOUT)
    facts = LAYOUT.file.stat()
    assert facts.st_mode & 0o777 == 0o600
    assert facts.st_size == LAYOUT.num_bytes
    assert facts.st_blocks * 512 >= LAYOUT.num_bytes


def test_black_picture_counts_as_there():
    file = PixelFile(LAYOUT)
    file.write(0, np.zeros((4, 6, 3), dtype=np.uint8))
    assert file.is_valid(0)


def test_file_that_is_cut_short_while_it_is_read_is_an_error():
    """It was read at its end for ever."""
    file = PixelFile(LAYOUT, is_large=True)
    file.write(3, PICTURE)
    os.truncate(LAYOUT.file, LAYOUT.pixels_offset + 3 * LAYOUT.picture_bytes + 5)
    with pytest.raises(UseCaseError, match="was cut short while it was read: start again"):
        file.read([3])
    assert not PixelFile(LAYOUT).is_stored(3)


def test_damaged_picture_is_found_out():
    PixelFile(LAYOUT).write(3, PICTURE)
    with LAYOUT.file.open("r+b") as stream:
        stream.seek(LAYOUT.pixels_offset + 3 * LAYOUT.picture_bytes + 5)
        stream.write(b"\xff")
    assert not PixelFile(LAYOUT).is_valid(3)


@pytest.mark.parametrize(
    "other",
    [
        replace(LAYOUT, key="2"),
        replace(LAYOUT, key="2", shape=(2, 12, 3)),
        replace(LAYOUT, key="2", count=7),
    ],
)
def test_new_key_takes_the_place_of_the_old_file(other):
    PixelFile(LAYOUT).write(0, PICTURE)
    new = PixelFile(other)
    assert not LAYOUT.file.exists()
    assert not new.is_valid(0)


def test_file_of_another_key_stays_as_long_as_somebody_has_it_open():
    """The story: hosts that shared the cache, each with pictures of its own under one path, removed
    one another's files."""
    theirs = PixelFile(LAYOUT)
    theirs.write(0, PICTURE)
    PixelFile(replace(LAYOUT, key="2"))
    again = PixelFile(LAYOUT)
    assert again.is_valid(0)
    del theirs
    PixelFile(replace(LAYOUT, key="3"))
    assert LAYOUT.file.exists()
    del again
    PixelFile(replace(LAYOUT, key="4"))
    assert list(LAYOUT.file.parent.glob("*-*")) == [replace(LAYOUT, key="4").file]


@pytest.mark.parametrize("changed", [{"shape": (6, 4, 3)}, {"count": 1400}])
def test_file_of_another_shape_is_not_taken_for_this_one(changed):
    PixelFile(LAYOUT).write(0, PICTURE)
    other = replace(LAYOUT, **changed)
    assert other.file == LAYOUT.file
    assert not PixelFile(other).is_valid(0)


def test_splits_have_files_of_their_own():
    validation = replace(LAYOUT, name="data validation")
    PixelFile(LAYOUT).write(0, PICTURE)
    assert not PixelFile(validation).is_valid(0)
    assert LAYOUT.file.exists()


@pytest.mark.parametrize("harm", ["cut", "head"])
def test_file_that_something_has_harmed_is_made_again(harm):
    PixelFile(LAYOUT).write(0, PICTURE)
    if harm == "cut":
        os.truncate(LAYOUT.file, LAYOUT.num_bytes - 1)
    else:
        with LAYOUT.file.open("r+b") as stream:
            stream.write(b"?")
    file = PixelFile(LAYOUT)
    assert not file.is_valid(0)
    assert LAYOUT.file.stat().st_size == LAYOUT.num_bytes


def test_rest_of_a_process_that_was_killed_while_making_the_file_is_removed():
    left = LAYOUT.file_prefix.with_name(f"{LAYOUT.file_prefix.name}-new-killed")
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    PixelFile(LAYOUT)
    assert not left.exists()


@pytest.mark.long
def test_processes_that_make_the_file_at_once_end_with_the_same_one():
    script = (
        "import sys, os\n"
        "from launch.data.pixel_file import PixelFile\n"
        "from launch.data.pixel_layout import PixelLayout\n"
        "import numpy as np\n"
        "layout = PixelLayout(name='data train', key='1', shape=(4, 6, 3), count=1500)\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "file = PixelFile(layout)\n"
        "file.write(int(sys.argv[1]), np.full((4, 6, 3), int(sys.argv[1]), dtype=np.uint8))\n"
    )
    starters = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number in range(3)
    ]
    for starter in starters:
        assert starter.stdout.readline() == b"ready\n"
    for starter in starters:
        starter.stdin.write(b"go\n")
        starter.stdin.flush()
    for starter in starters:
        starter.communicate()
        assert starter.returncode == 0
    file = PixelFile(LAYOUT)
    assert all(file.is_valid(number) for number in range(3))


def test_too_small_disk_is_refused_with_bytes_needed_and_free():
    huge = replace(LAYOUT, count=10**12)
    with pytest.raises(UseCaseError) as caught:
        PixelFile(huge)
    message = str(caught.value)
    assert f"need {huge.num_bytes} bytes" in message
    assert "bytes are free" in message
    assert "DDLPLAN_CACHE" in message
    assert "input=files" in message
    assert list(huge.file.parent.glob("*-*")) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="to mount a small disk needs root")
def test_small_disk_keeps_a_gibibyte_free(tmp_path, monkeypatch):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1100m", "none", disk], check=False
    )
    if mounted.returncode != 0:
        pytest.skip("this root may not mount")
    try:
        monkeypatch.setenv("DDLPLAN_CACHE", str(disk))
        fits = replace(LAYOUT, count=700_000)
        assert fits.num_bytes < 76 << 20
        assert find_disk_shortage([fits]) is None
        assert find_disk_shortage([fits, replace(fits, name="validation")]) is not None
        PixelFile(fits)
        assert find_disk_shortage([fits]) is None, "what is there already needs no room"
        with pytest.raises(UseCaseError, match=f"need {fits.num_bytes} bytes"):
            PixelFile(replace(fits, name="validation"))
        PixelFile(replace(fits, key="2"))  # the older one makes room for it
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_folder_that_cannot_be_written_says_the_way_out(cache):
    cache.parent.mkdir(exist_ok=True)
    cache.write_text("a file where the folder should be")
    with pytest.raises(UseCaseError, match="set DDLPLAN_CACHE"):
        PixelFile(LAYOUT)
