"""A step whose loss a GPU still computes is waited for when the next one is launched."""

from __future__ import annotations

import os

import pytest
import torch

from launch.reports import Report, Reporter, StepDone
from launch.training.averaging.loss_sum import LossSum
from launch.training.loss import PendingLoss, find_mean, read_async
from launch.workers import step_timer
from launch.workers.step_timer import LaunchedStep, StepTimer


class Computing(PendingLoss):
    """A loss that is known when it is asked for."""

    def __init__(self, value: float) -> None:
        self.value = value
        self.was_asked = False

    def is_known(self) -> bool:
        return self.was_asked

    def __float__(self) -> float:
        self.was_asked = True
        return self.value


@pytest.fixture
def told():
    """A reporter, and what it has sent since it was asked last."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)

    def take() -> list[StepDone]:
        try:
            return [Report.decode(line) for line in os.read(reading, 65536).splitlines()]
        except BlockingIOError:
            return []

    yield Reporter(writing), take
    os.close(reading)
    os.close(writing)


def test_a_loss_that_is_known_is_told_at_once(told):
    reporter, take = told
    reports = StepTimer(reporter, is_compiled=False)
    reports.start()
    reports.add(LaunchedStep(epoch=0, number=1, samples=8, loss=0.5, input_s=0.1))
    (step,) = take()
    assert (step.step, step.loss, step.samples, step.input_s) == (0, 0.5, 8, 0.1)
    assert not reports.is_computing()


def test_a_weighed_loss_that_is_known_is_told_at_once(told):
    """It was told with the next step: of two steps the first took the time of both."""
    reporter, take = told
    reports = StepTimer(reporter, is_compiled=False)
    reports.start()
    weighed = find_mean(LossSum(loss=3.0, weight=4.0))
    reports.add(LaunchedStep(epoch=0, number=1, samples=8, loss=weighed, input_s=0.1))
    (step,) = take()
    assert step.loss == 0.75


def test_a_weighed_loss_on_a_gpu_is_told_when_the_next_step_is_launched(told):
    reporter, take = told
    reports = StepTimer(reporter, is_compiled=False)
    reports.start()
    weighed = find_mean(LossSum(loss=Computing(3.0), weight=4.0))
    reports.add(LaunchedStep(epoch=0, number=1, samples=8, loss=weighed, input_s=0.1))
    assert not take()
    reports.finish()
    (step,) = take()
    assert step.loss == 0.75


def test_a_loss_on_a_gpu_is_told_when_the_next_step_is_launched(told):
    reporter, take = told
    reports = StepTimer(reporter, is_compiled=False)
    reports.start()
    losses = [Computing(value) for value in (3.0, 2.0, 1.0)]
    seen = []
    for loss in losses:
        reports.add(LaunchedStep(epoch=0, number=1, samples=8, loss=loss, input_s=0.0))
        assert reports.is_computing()
        seen.append([step.loss for step in take()])
    assert seen == [[], [3.0], [2.0]]
    reports.finish()
    assert [(step.step, step.loss) for step in take()] == [(2, 1.0)]
    assert not reports.is_computing()


def test_a_step_whose_update_is_being_made_is_still_computed(told, monkeypatch):
    """Its loss was known, and the input that came meanwhile counted as waited for."""

    class Update:
        is_made = False

        def query(self) -> bool:
            return self.is_made

        def synchronize(self) -> None:
            self.is_made = True

    update, loss = Update(), Computing(1.0)
    monkeypatch.setattr(step_timer, "_record_event", lambda: update)
    reporter, _ = told
    reports = StepTimer(reporter, is_compiled=False)
    reports.start()
    reports.add(LaunchedStep(epoch=0, number=1, samples=8, loss=loss, input_s=0.0))
    assert float(loss) == 1.0
    assert loss.is_known()
    assert reports.is_computing()
    update.synchronize()
    assert not reports.is_computing()


def test_times_of_steps_add_up_to_the_epoch(told):
    reporter, take = told
    reports = StepTimer(reporter, is_compiled=False)
    reports.start()
    began = reports._started
    for _ in range(3):
        reports.add(LaunchedStep(epoch=0, number=1, samples=8, loss=Computing(1.0), input_s=0.0))
    reports.finish()
    assert sum(step.time_s for step in take()) == pytest.approx(reports._started - began)


def test_memory_of_a_gpu_is_told_where_steps_pause(told, monkeypatch):
    """The story: it was asked for in each step, while a GPU with short steps waited for its next
    one."""
    monkeypatch.setattr(step_timer, "_peak_device_memory_bytes", lambda: 7)
    reporter, take = told
    reports = StepTimer(reporter, is_compiled=False)
    reports.start()
    for loss in (Computing(1.0), Computing(1.0), Computing(1.0)):
        reports.add(LaunchedStep(epoch=0, number=1, samples=8, loss=loss, input_s=0.0))
    reports.finish()
    assert [step.peak_device_memory_bytes for step in take()] == [None, None, 7]
    reports.add(LaunchedStep(epoch=0, number=4, samples=8, loss=1.0, input_s=0.0))
    assert [step.peak_device_memory_bytes for step in take()] == [7]


def test_a_worker_that_reports_nothing_still_waits():
    """The story: a worker that never reads its losses runs ahead and fills the GPU's memory."""
    reports = StepTimer(None, is_compiled=False)
    reports.start()
    first, second = Computing(1.0), Computing(2.0)
    reports.add(LaunchedStep(epoch=0, number=1, samples=8, loss=first, input_s=0.0))
    reports.add(LaunchedStep(epoch=0, number=1, samples=8, loss=second, input_s=0.0))
    assert (first.was_asked, second.was_asked) == (True, False)


def test_a_loss_on_a_cpu_is_a_number():
    assert read_async(torch.tensor(2.5)) == 2.5


@pytest.mark.gpu
def test_a_loss_on_a_gpu_is_known_later():
    loss = read_async(torch.tensor(2.5, device="cuda"))
    assert isinstance(loss, PendingLoss)
    assert float(loss) == 2.5
    assert loss.is_known()


@pytest.mark.gpu
def test_the_last_step_before_a_pause_on_a_gpu_ends_with_its_update():
    """The story: of each turn of a trial, the last update was in no step's time."""
    reports = StepTimer(None, is_compiled=False)
    reports.start()
    loss = read_async(torch.tensor(2.5, device="cuda"))
    torch.cuda._sleep(10**9)  # the update: half a second and more
    reports.add(LaunchedStep(epoch=0, number=1, samples=8, loss=loss, input_s=0.0))
    assert not torch.cuda.current_stream().query()
    reports.finish()
    assert torch.cuda.current_stream().query()


@pytest.mark.gpu
def test_a_step_on_a_gpu_has_the_time_of_its_own_update(told):
    """The story: of a turn of four steps the first does not count, and the other three had the
    updates of all four."""
    reporter, take = told
    reports = StepTimer(reporter, is_compiled=False)
    value = torch.tensor(2.5, device="cuda")
    torch.cuda.synchronize()
    reports.start()
    for cycles in (10**9, 1):
        loss = read_async(value)
        torch.cuda._sleep(cycles)  # the update
        reports.add(LaunchedStep(epoch=0, number=1, samples=8, loss=loss, input_s=0.0))
    reports.finish()
    slow, quick = take()
    assert slow.time_s > 10 * quick.time_s
