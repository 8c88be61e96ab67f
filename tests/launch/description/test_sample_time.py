"""What is not ready at first, files and operators, does not count."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from launch.description import sample_time
from launch.description.sample_time import time_reading, time_sample


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


def time_steps(clock, fixed_s, each_s, slow=1):
    """Time steps of which one, the first, takes half a minute; give the sizes of all as well."""
    made = []

    def step(model, batch):
        made.append(len(batch[0]))
        clock.now += 30.0 if len(made) == slow else fixed_s + each_s * made[-1]
        return model(batch[0]).sum()

    case = SimpleNamespace(collate=None, step=step, default_batch=64)
    samples = TensorDataset(torch.zeros(16, 3))
    return time_sample(case, nn.Linear(3, 1), samples, 16), made


def test_first_pass_does_not_count(clock):
    """In a busy moment it took two seconds, and tune refused a budget that was large enough."""
    found, made = time_steps(clock, 0.0, 1.0)
    assert (found.sample_s, found.calls_s) == (1.0, None)
    assert made == [2, 2]


def test_second_pass_does_not_count_where_the_machine_stands_still_in_it(clock):
    """No other follows then: a step seemed to take minutes, and the search began with looks."""
    found, made = time_steps(clock, 0.0, 0.001, slow=2)
    assert (found.sample_s, made) == (0.001, [2, 2])


def test_calls_are_told_from_samples_as_soon_as_these_take_most_of_a_pass(clock):
    found, made = time_steps(clock, 0.010, 0.001)
    assert found.calls_s == pytest.approx(0.010)
    assert found.sample_s == pytest.approx(0.074 / 64)
    assert made == [2, *(size for size in (2, 4, 8, 16, 32, 64) for _ in range(2))]


def test_no_pass_has_more_than_a_batch_where_samples_cost_nothing(clock):
    found, made = time_steps(clock, 0.010, 0.0)
    assert found.calls_s == pytest.approx(0.010)
    assert max(made) == 64
