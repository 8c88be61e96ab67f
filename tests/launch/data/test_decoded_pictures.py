"""Pictures are decoded once, by whoever comes first, and equal those of the data set itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from launch.data.batch import move_batch, num_samples, split_batch
from launch.data.decoded_pictures import DecodedPictures, make_layout
from launch.data.device_pictures import DevicePictures
from launch.data.loading import load
from launch.data.samples import Part, ShareSampler
from launch.data.split import BatchSize, NodeSplit
from launch.errors import UseCaseError

CPU = torch.device("cpu")
FORMATS = [torch.preserve_format, torch.channels_last]
SIZE = 21


def one_epoch(dataset, memory_format=torch.preserve_format):
    """Give an epoch's batches as a step gets them, always of the same seed."""
    torch.manual_seed(5)
    work = ShareSampler(SIZE, NodeSplit((8,), 0), part=Part(0, 1), seed=1).epoch(0)
    loaded = load(dataset, iter(work), loader_workers=0)
    return [move_batch(batch, CPU, memory_format) for batch, _ in loaded]


def assert_equal(found, expected):
    assert len(found) == len(expected)
    for (inputs, targets), (plain, plain_targets) in zip(found, expected, strict=True):
        assert torch.equal(inputs, plain)
        assert inputs.stride() == plain.stride()
        assert targets["class"].tolist() == plain_targets["class"].tolist()
        assert targets["name"] == plain_targets["name"]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("memory_format", FORMATS)
def test_batches_equal_those_of_the_data_set(squares, threads, memory_format):
    source = squares(SIZE)
    plain = one_epoch(source, memory_format)
    decoded = DecodedPictures(squares(SIZE), threads=threads)
    for _ in range(2):
        assert_equal(one_epoch(decoded, memory_format), plain)
    assert sorted(decoded.source.decoded) == list(range(SIZE))


@pytest.mark.parametrize("memory_format", FORMATS)
def test_batches_on_the_device_equal_those_of_the_data_set(squares, memory_format):
    decoded = DecodedPictures(squares(SIZE), threads=1)
    device = DevicePictures(decoded, list(range(SIZE)), CPU)
    assert len(device) == SIZE
    assert_equal(one_epoch(device, memory_format), one_epoch(squares(SIZE), memory_format))


def test_generator_is_left_as_the_data_set_leaves_it(squares):
    one_epoch(squares(SIZE))
    expected = torch.get_rng_state()
    one_epoch(DecodedPictures(squares(SIZE), threads=1))
    assert torch.equal(torch.get_rng_state(), expected)


def test_pieces_of_a_batch_are_finished_as_the_whole(squares):
    decoded = DecodedPictures(squares(SIZE), threads=1)
    (batch,) = (
        b for b, _ in load(decoded, iter([(list(range(7)), BatchSize(7, 7))]), loader_workers=0)
    )
    assert num_samples(batch) == 7
    whole, _ = move_batch(batch, CPU, torch.channels_last)
    pieces = [move_batch(piece, CPU, torch.channels_last) for piece in split_batch(batch, 3)]
    assert torch.equal(torch.cat([inputs for inputs, _ in pieces]), whole)


def test_second_process_decodes_nothing(squares):
    DecodedPictures(squares(SIZE), threads=1).fill(range(SIZE))
    later = DecodedPictures(squares(SIZE), threads=1)
    later.rows(list(range(SIZE)))
    assert later.source.decoded == []


def test_changed_key_decodes_again(squares):
    DecodedPictures(squares(SIZE), threads=1).fill(range(SIZE))
    changed = DecodedPictures(squares(SIZE, key="2"), threads=1)
    changed.fill(range(SIZE))
    assert changed.source.decoded == list(range(SIZE))


def test_damaged_picture_is_decoded_again(squares):
    first = DecodedPictures(squares(SIZE), threads=1)
    rows = first.rows(list(range(SIZE)))
    layout = make_layout(squares(SIZE))
    with layout.file.open("r+b") as stream:
        stream.seek(layout.pixels_offset + 4 * layout.picture_bytes)
        stream.write(bytes(layout.picture_bytes))
    again = DecodedPictures(squares(SIZE), threads=1)
    assert torch.equal(again.rows(list(range(SIZE))), rows)
    assert again.source.decoded == [4]


def test_sample_that_is_asked_for_twice_is_decoded_once(squares):
    decoded = DecodedPictures(squares(SIZE), threads=2)
    rows = decoded.rows([3, 3, 4])
    assert torch.equal(rows[0], rows[1])
    assert sorted(decoded.source.decoded) == [3, 4]


def test_failing_picture_ends_the_batch_with_its_own_error(squares):
    class Broken(squares):
        def pixels(self, index):
            if index == 5:
                raise UseCaseError("photo 5 is gone")
            return super().pixels(index)

    decoded = DecodedPictures(Broken(SIZE), threads=2)
    with pytest.raises(UseCaseError, match="photo 5 is gone"):
        decoded.fill(range(SIZE))


@pytest.mark.parametrize("wrong", [np.zeros((8, 8, 3), np.float32), np.zeros((8, 7, 3), np.uint8)])
def test_pixels_of_another_shape_or_kind_are_refused(squares, wrong):
    class Wrong(squares):
        def pixels(self, index):
            return wrong

    with pytest.raises(UseCaseError, match="give uint8 of one shape"):
        DecodedPictures(Wrong(SIZE), threads=1).fill([0])


FILLING = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from conftest import Squares
from launch.data.decoded_pictures import DecodedPictures
class Slower(Squares):  # from the thousandth on
    def pixels(self, index):
        time.sleep(float(sys.argv[3]) * (index >= 1000))
        return super().pixels(index)
decoded = DecodedPictures(Slower(2000, log=Path(sys.argv[2])), threads=2)
decoded.fill(range(2000))
"""


def start_filling(log: Path, *, pause_s: float = 0.0) -> subprocess.Popen[bytes]:
    folder = str(Path(__file__).parent)
    return subprocess.Popen([sys.executable, "-c", FILLING, folder, str(log), str(pause_s)])


@pytest.mark.long
def test_two_processes_fill_at_once(squares, tmp_path):
    fillers = [start_filling(tmp_path / f"log{number}") for number in range(2)]
    assert [filler.wait() for filler in fillers] == [0, 0]
    decoded = DecodedPictures(squares(2000), threads=1)
    rows = decoded.rows(list(range(2000)))
    assert decoded.source.decoded == []
    assert torch.equal(rows[1999], torch.from_numpy(squares(2000).pixels(1999)).view(-1))


def test_process_killed_while_it_fills_leaves_sound_pictures_only(squares, tmp_path):
    log = tmp_path / "log"
    filler = start_filling(log, pause_s=0.1)  # it is not done before it is killed
    while not log.exists() or log.stat().st_size < 500:
        assert filler.poll() is None
        time.sleep(0.001)
    os.kill(filler.pid, signal.SIGKILL)
    filler.wait()
    decoded = DecodedPictures(squares(2000), threads=1)
    rows = decoded.rows(list(range(2000)))
    assert 0 < len(decoded.source.decoded) < 2000
    plain = torch.stack([torch.from_numpy(squares(1).pixels(i)).view(-1) for i in range(2000)])
    assert torch.equal(rows, plain)
