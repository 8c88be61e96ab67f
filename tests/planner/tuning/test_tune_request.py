"""Which batches a search may try, on CPUs and on GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launch.errors import InvalidPlanError
from launch.workload import Workload
from planner.tuning.tune_request import TuneRequest, check_batch, limit_choices
from tests.planner.tuning.recorded_search import CASE


def choices(min_s: float = 0.0, train_samples: int = 5418, **limits):
    case = replace(CASE, train_samples=train_samples)
    request = TuneRequest(workload=Workload(use_case="simplebig"), **limits)
    chosen = limit_choices(case, request, least_time_per_sample_s=min_s)
    return chosen.batch_choices, chosen.gpu_batch_choices


def test_gpus_are_offered_larger_batches_than_cpus():
    assert choices() == ((32, 64, 128, 256), (32, 64, 128, 256, 512, 1024, 2048, 4096))


def test_batches_below_the_default_one_are_tried_where_a_loss_is_searched_for():
    on_cpu, on_gpu = choices(objective="time-to-loss")
    assert on_cpu == (4, 8, 16, 32, 64, 128, 256)
    assert on_gpu[:4] == (4, 8, 16, 32)
    assert choices(objective="time-to-loss", max_batch=20)[0] == (4, 8, 16)
    # Judging a small one takes least time of all.
    assert choices(objective="time-to-loss", min_s=1.0, budget_s=60.0)[0] == (4, 8)


def test_slow_cpu_says_nothing_of_a_gpu():
    on_cpu, on_gpu = choices(min_s=1.0, budget_s=300.0)
    assert on_cpu == (32, 64)
    assert on_gpu[-1] == 4096


@pytest.mark.parametrize(
    ("limits", "on_cpu", "on_gpu"),
    [
        ({"batch_size": 48}, (48,), (48,)),
        ({"max_batch": 128}, (32, 64, 128), (32, 64, 128)),
        ({"max_batch": 600}, (32, 64, 128, 256), (32, 64, 128, 256, 512)),
        ({"max_batch": 20}, (20,), (20,)),
        ({"train_samples": 130}, (32, 64, 128), (32, 64, 128)),
    ],
)
def test_batches_stay_within_the_users_limits_and_the_samples(limits, on_cpu, on_gpu):
    assert choices(**limits) == (on_cpu, on_gpu)


@pytest.mark.parametrize(
    ("read_s", "input_share", "most"),
    [
        (0.0001, 0.002, 0),
        (0.0001, 0.02, 2),  # the files come from a slow disk
        (0.001, 0.002, 2),
        (0.0001, None, 2),
        (None, 0.0, 2),
    ],
)
def test_loading_processes_are_offered_where_reading_takes_a_hundredth_of_a_step(
    read_s, input_share, most
):
    case = replace(CASE, read_s=read_s, sample_s=0.02)
    request = TuneRequest(workload=Workload(use_case="simplebig"))
    limited = limit_choices(
        case, request, least_time_per_sample_s=0.0, cores=2, input_share=input_share
    )
    assert limited.most_loaders == most


@pytest.mark.parametrize("option", ["batch_size", "max_batch"])
def test_batch_of_more_samples_than_there_are_is_refused(option):
    workload = Workload(use_case="simplebig")
    check_batch(TuneRequest(workload=workload, **{option: 5418}), CASE)
    with pytest.raises(InvalidPlanError, match=f"use at most --{option.replace('_', '-')} 5418"):
        check_batch(TuneRequest(workload=workload, **{option: 5419}), CASE)
