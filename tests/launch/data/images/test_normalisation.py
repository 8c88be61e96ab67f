"""The last part of preparing pictures, for many at once."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from launch.data.images.normalisation import flip_and_normalise

MEAN, DEVIATION = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


def pixels(count, size=8):
    made = torch.Generator().manual_seed(count)
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=made)


@pytest.mark.parametrize("size", [8, 700])
@pytest.mark.parametrize("mirrors", [False, True])
def test_pictures_of_a_batch_are_finished_as_each_alone(size, mirrors):
    """Large ones a few at a time, small ones many; one of 700 x 700 does not fit with others."""
    raw = pixels(5, size)
    mirrored = torch.tensor([True, False, True, True, False]) if mirrors else None
    finished = flip_and_normalise(raw, mirrored, MEAN, DEVIATION)
    for number, one in enumerate(raw):
        plain = one.flip(2) if mirrors and mirrored[number] else one
        expected = plain.float().div_(255.0)
        mean, deviation = (torch.tensor(each).view(3, 1, 1) for each in (MEAN, DEVIATION))
        assert torch.equal(finished[number], expected.sub_(mean).div_(deviation))


def test_no_pictures_are_finished_as_none():
    assert flip_and_normalise(pixels(0), None, MEAN, DEVIATION).shape == (0, 3, 8, 8)


class CountedTensors(TorchDispatchMode):
    """Counts the tensors that operations give."""

    def __init__(self):
        super().__init__()
        self.made = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.made += len(result) if isinstance(result, list | tuple) else 1
        return result


@pytest.mark.parametrize("mirrors", [False, True])
def test_twice_the_pictures_are_twice_the_work(mirrors, monkeypatch):
    """Of each few, views of all that were left had been made: 8192 digits took eight seconds."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)  # many would take all at once

    def made(count):
        with CountedTensors() as counted:
            flags = torch.ones(count, dtype=torch.bool) if mirrors else None
            flip_and_normalise(pixels(count, 112), flags, MEAN, DEVIATION)
        return counted.made

    assert made(512) <= 2.2 * made(256)
