"""What the reports of an epoch add up to."""

from __future__ import annotations

import math
import tracemalloc

import pytest

from launch.rank.epoch import EpochStatistics
from launch.reports import StepDone, StepsFinished, Validated


def step(epoch: int, loss: float, samples: int = 8, time_s: float = 0.5) -> StepDone:
    return StepDone(step=0, epoch=epoch, time_s=time_s, samples=samples, loss=loss)


def validated(epoch: int, **changes: object) -> Validated:
    values = {"samples": 2, "loss_sum": 3.0, "weight": 2.0, "time_s": 1.0} | changes
    return Validated(epoch=epoch, **values)


def test_step_counts_as_much_as_it_has_samples_and_a_worker_as_much_as_its_weight():
    statistics = EpochStatistics(2, 8)
    statistics.add_step(step(0, loss=1.0))
    statistics.add_step(step(0, loss=4.0, samples=4))
    statistics.add_finish(StepsFinished(epoch=0, time_s=1.0, learning_rates=(0.1,)))
    assert statistics.add_validation(validated(0, metric_sums={"accuracy": 1.0})) is None
    epoch = statistics.add_validation(validated(0, samples=6, weight=1.0, time_s=2.0))
    assert epoch.epoch == 1
    assert epoch.samples == 12
    assert epoch.train_loss == pytest.approx(2.0)
    assert epoch.train_time_s == pytest.approx(2.0)
    assert epoch.throughput_samples_per_s == pytest.approx(6.0)
    assert epoch.validation_loss == pytest.approx(2.0)
    assert epoch.validation_time_s == pytest.approx(2.0)
    assert epoch.metrics == {"accuracy": pytest.approx(1 / 8)}
    assert epoch.learning_rates == (0.1,)


def test_steps_of_the_next_epoch_may_come_before_all_have_validated_this_one():
    statistics = EpochStatistics(1, 8)
    statistics.add_step(step(0, loss=1.0))
    statistics.add_step(step(1, loss=3.0))
    assert statistics.add_validation(validated(0)).train_loss == pytest.approx(1.0)
    assert statistics.add_validation(validated(1)).train_loss == pytest.approx(3.0)


def test_epoch_that_was_only_validated_has_no_loss_of_its_training():
    epoch = EpochStatistics(1, 8).add_validation(validated(4))
    assert math.isnan(epoch.train_loss)
    assert epoch.throughput_samples_per_s == 0


def test_long_epoch_takes_no_more_memory_than_a_short_one():
    """The story: every step was kept until the epoch's end: some 200 MB for a million."""
    statistics = EpochStatistics(1, 8)
    statistics.add_step(step(0, loss=1.0))
    tracemalloc.start()
    try:
        for _ in range(10_000):
            statistics.add_step(step(0, loss=1.0))
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 100_000  # it was ten times that
    assert statistics.add_validation(validated(0)).samples == 8 * 10_001
