"""Decoded pictures that exceed the memory are read ahead, and are the same."""

from __future__ import annotations

import threading

import torch

from launch.data.decoded_pictures import DecodedPictures
from launch.data.loading import load
from launch.data.look_ahead import look_ahead
from launch.data.pixel_file import PixelFile
from launch.data.samples import Part, ShareSampler
from launch.data.split import BatchSize, NodeSplit

SIZE = 21


def epoch(dataset, loader_workers=0):
    torch.manual_seed(5)
    work = ShareSampler(SIZE, NodeSplit((8,), 0), part=Part(0, 1), seed=1).epoch(0)
    loaded = load(dataset, iter(work), loader_workers=loader_workers)
    return [(pictures.pixels, targets["class"]) for (pictures, targets), _ in loaded]


def assert_same(found, expected):
    assert len(found) == len(expected)
    for (pixels, targets), (plain, plain_targets) in zip(found, expected, strict=True):
        assert torch.equal(pixels, plain)
        assert torch.equal(targets, plain_targets)


def test_large_pictures_equal_those_of_a_map(squares):
    expected = epoch(DecodedPictures(squares(SIZE), threads=1))
    for forgets in (False, True):
        source = squares(SIZE)
        large = DecodedPictures(source, threads=1, is_large=True, forgets=forgets)
        assert_same(epoch(large), expected)
        assert_same(epoch(large), expected)
        assert_same(epoch(large, loader_workers=2), expected)
        assert source.decoded == []  # the first data set has decoded all of them


def test_large_pictures_are_decoded_where_they_are_missing_or_damaged(squares):
    source = squares(SIZE)
    large = DecodedPictures(source, threads=2, is_large=True)
    expected = epoch(large)
    assert sorted(source.decoded) == list(range(SIZE))
    picture = torch.full((large.layout.picture_bytes,), 7, dtype=torch.uint8)
    file = PixelFile(large.layout)
    checksums = file._checksums[3]
    file.write(3, picture.numpy())
    assert file._checksums[3] != checksums
    with large.layout.file.open("r+b") as damaged:
        damaged.seek(large.layout.pixels_offset + 3 * large.layout.picture_bytes)
        damaged.write(b"\1")
    later = squares(SIZE)
    assert_same(epoch(DecodedPictures(later, threads=1, is_large=True)), expected)
    assert later.decoded == [3]


class Recorded:
    """Notes what it is told; its disk has room in its queue once it is released."""

    sample_bytes = 1 << 20

    def __init__(self, *, is_full=False):
        self.announced, self.read = [], []
        self.released = threading.Event()
        if not is_full:
            self.released.set()

    def will_need(self, samples):
        self.released.wait()
        self.announced.append(list(samples))

    def read_ahead(self, samples, pool):
        self.read.append(list(samples))


def batches(count, size=16):
    return [
        (list(range(size * number, size * (number + 1))), BatchSize(size, size))
        for number in range(count)
    ]


def test_samples_of_the_next_batches_are_announced_in_their_order():
    work, dataset = batches(12), Recorded()
    ahead = look_ahead(iter(work), dataset)
    given = [next(ahead)]
    # 64 MiB are four batches of 16 samples: the fifth makes the first one's turn.
    assert len(dataset.announced) <= 5
    assert dataset.read == [work[1][0]]
    given += list(ahead)
    assert given == work
    # What was not announced by the end is not needed any more.
    assert dataset.announced == [indices for indices, _ in work][: len(dataset.announced)]
    assert dataset.read == [indices for indices, _ in work[1:]]


def test_full_queue_of_the_disk_holds_up_nobody():
    dataset = Recorded(is_full=True)
    ahead = look_ahead(iter(batches(40)), dataset)
    for _ in range(20):
        next(ahead)
    assert dataset.announced == []
    dataset.released.set()
    ahead.close()


def test_threads_end_with_the_iterator():
    ahead = look_ahead(iter(batches(40)), Recorded())
    next(ahead)
    assert any("look-ahead" in thread.name for thread in threading.enumerate())
    ahead.close()
    assert not any("-ahead" in thread.name for thread in threading.enumerate())
