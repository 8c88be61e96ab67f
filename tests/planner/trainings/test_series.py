"""Series of what a host uses: points, their means and maxima, and what becomes of too many."""

from __future__ import annotations

import json
from math import nan

from usage_samples import steps, used

from planner.records.usage_record import HostUsage
from planner.trainings.series import MOST_POINTS, UsageSeries
from probes import codec
from probes.sampling.gpus import GpuUse


def series(**changes):
    return UsageSeries(**{"is_first": True, "has_syncs": False, **changes})


def test_each_sample_is_a_point_while_there_are_few():
    filled = series()
    filled.add(1.5, used(busy_cores=1.0))
    filled.add(2.5, used(busy_cores=2.0, steps=steps()))
    values = filled.values()
    assert values.time_s == (1.5, 2.5)
    assert values.busy_cores.mean == values.busy_cores.maximum == (1.0, 2.0)
    assert values.loss.mean == (None, 0.5)
    assert values.samples_per_s.mean == (None, 64.0)
    assert values.input_wait.mean == (None, 0.25)
    assert values.gpus == ()


def test_two_points_become_one_when_there_are_too_many():
    filled = series()
    for second in range(MOST_POINTS + 1):
        filled.add(second + 1.0, used(busy_cores=float(second % 2)))
    values = filled.values()
    assert len(values.time_s) == MOST_POINTS // 2 + 1
    assert values.time_s[:2] == (2.0, 4.0)
    assert set(values.busy_cores.mean[:-1]) == {0.5}
    assert set(values.busy_cores.maximum[:-1]) == {1.0}


def test_series_of_any_length_is_bounded_and_keeps_its_mean_and_its_peak():
    filled, count = series(), 10 * MOST_POINTS
    for second in range(count):
        filled.add(second + 1.0, used(busy_cores=9.0 if second == 77 else 1.0))
    values = filled.values()
    assert MOST_POINTS / 2 <= len(values.time_s) <= MOST_POINTS
    assert values.time_s[-1] == count
    assert max(values.busy_cores.maximum) == 9.0
    assert len(json.dumps(codec.to_builtins(values))) < 150_000


def test_points_weigh_samples_by_their_time_and_losses_by_their_samples():
    filled = series()
    filled.add(1.0, used(elapsed_s=3.0, busy_cores=2.0, steps=steps(samples=1, loss_sum=9.0)))
    filled.add(2.0, used(elapsed_s=1.0, busy_cores=0.0, steps=steps(samples=3, loss_sum=3.0)))
    filled._halve()
    values = filled.values()
    assert values.busy_cores.mean == (1.5,)
    assert values.loss.mean == (3.0,)
    assert values.loss.maximum == (9.0,)


def test_quantity_that_nobody_tells_is_absent():
    values = series(is_first=False)
    values.add(1.0, used(memory_bytes=None, steps=steps()))
    found = values.values()
    assert found.memory_bytes is None
    assert found.loss is None
    assert found.samples_per_s is None
    assert found.sync_wait is None
    assert series(has_syncs=True).values().busy_cores is None


def test_waiting_for_sums_is_told_of_each_of_several_hosts():
    waiting = series(is_first=False, has_syncs=True)
    waiting.add(1.0, used(steps=steps(sync_s=0.5)))
    waiting.add(2.0, used(steps=steps(sync_s=7.0)))  # it began in an earlier step
    assert waiting.values().sync_wait.mean == (0.5, 1.0)


def test_noise_scale_is_that_of_the_first_host_where_it_was_measured():
    filled = series()
    filled.add(1.0, used(steps=steps()))
    filled.add(2.0, used(steps=steps(noise_scale=300.0)))
    assert filled.values().noise_scale.mean == (None, 300.0)
    other = series(is_first=False)
    other.add(1.0, used(steps=steps(noise_scale=300.0)))
    assert other.values().noise_scale is None


def test_loss_that_is_no_number_is_left_out_and_later_ones_are_not():
    filled = series()
    filled.add(1.0, used(steps=steps(loss_sum=nan)))
    filled.add(2.0, used(steps=steps(samples=2, loss_sum=1.0)))
    assert filled.values().loss.mean == (None, 0.5)


def test_gpu_that_is_there_from_the_second_sample_on_has_no_value_before():
    filled = series()
    filled.add(1.0, used())
    gpu = GpuUse(uuid="GPU-a", utilisation=0.5, memory_bytes=None, power_w=200.0)
    filled.add(2.0, used(gpus=(gpu,)))
    (found,) = filled.values().gpus
    assert found.uuid == "GPU-a"
    assert found.utilisation.mean == (None, 0.5)
    assert found.memory_bytes is None
    assert found.power_w.maximum == (None, 200.0)


def test_series_is_the_same_after_it_was_stored():
    filled = series()
    filled.add(1.0, used(steps=steps()))
    values = filled.values()
    stored = json.loads(json.dumps(codec.to_builtins(values)))
    assert codec.convert(stored, HostUsage, source="usage") == values
