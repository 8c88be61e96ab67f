"""Reading is timed once the files are in memory."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from launch.description import sample_time
from launch.description.sample_time import time_reading


class Files:
    """Takes a second for a file when it is read first, and 2 ms later."""

    def __init__(self, clock):
        self._clock = clock
        self.read = []

    def __getitem__(self, index):
        if index >= 100:
            raise OSError("no such file")
        self._clock.now += 0.002 if index in self.read else 1.0
        self.read.append(index)


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(sample_time.time, "perf_counter", lambda: clock.now)
    return clock


def test_first_reading_of_a_file_does_not_count(clock):
    files = Files(clock)
    assert time_reading(files, 100) == pytest.approx(0.002)
    assert len(files.read) == 2 * len(set(files.read))


def test_samples_that_cannot_be_read_have_no_time(clock):
    assert time_reading(Files(clock), 10**6) == pytest.approx(0.002)  # the first one can
    assert time_reading({}, 5) is None
