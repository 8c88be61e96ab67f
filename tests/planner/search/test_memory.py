"""Which plans cannot fit, from what others needed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from imagined_machines import CASE, Machine, node_of

from launch.plan import Plan
from planner.search.memory import MemoryModel
from planner.trials.result import Outcome, TrialResult
from probes.hardware import Memory

PLAN = Plan(strategy="processes", node_batch=32, processes=2, replicas=2)
SMALL = replace(node_of(2), memory=Memory(total_bytes=2**33, usable_bytes=2**33))


def result(plan: Plan, peak_bytes: int | None, outcome: Outcome = Outcome.OK) -> TrialResult:
    known = Machine(parts=1, fixed=0.1).result(plan, outcome=outcome)
    return replace(known, peak_memory_bytes=peak_bytes)


def test_everything_may_fit_before_anything_is_known():
    assert MemoryModel(CASE, SMALL).may_fit(replace(PLAN, node_batch=256))


def test_two_batches_show_what_a_sample_needs():
    model = MemoryModel(CASE, SMALL)
    model.learn([result(replace(PLAN, node_batch=n), int(2e9 + 3e7 * n)) for n in (32, 64, 128)])
    peak = model.peak_bytes(replace(PLAN, node_batch=256))
    assert peak == pytest.approx(2e9 + 3e7 * 256, rel=0.25)


def test_plan_far_above_the_limit_does_not_fit_and_one_below_does():
    model = MemoryModel(CASE, SMALL)
    model.learn([result(replace(PLAN, node_batch=n), int(1e9 + 6e7 * n)) for n in (32, 64)])
    assert model.may_fit(replace(PLAN, node_batch=64))
    assert not model.may_fit(replace(PLAN, node_batch=512))
    assert model.may_fit(replace(PLAN, node_batch=512, micro_batches=16))


def test_what_ran_out_of_memory_does_so_with_more_samples():
    model = MemoryModel(CASE, node_of(8, gpus=2))
    plan = Plan(
        strategy="gpu_data",
        node_batch=512,
        processes=2,
        replicas=2,
        devices=("cuda:0", "cuda:1"),
        options={"cudnn_benchmark": True},
    )
    model.learn([result(plan, None, Outcome.OUT_OF_MEMORY)])
    assert not model.may_fit(replace(plan, node_batch=1024))
    assert not model.may_fit(replace(plan, fused_optimizer=True))
    assert model.may_fit(replace(plan, node_batch=256))
    assert model.may_fit(replace(plan, micro_batches=2))


def test_plans_that_need_less_than_was_believed_do_not_shut_out_all_others():
    """The story: each part was cut off at 0, and what the processes were denied went to a sample:
    884 MB of one that needed 0.1 MB. Nothing fitted any more, and the search ended early."""
    model = MemoryModel(CASE, SMALL)
    plans = [
        replace(PLAN, node_batch=32 * 2**number, micro_batches=micro, processes=k, replicas=k)
        for number in range(3)
        for micro in (1, 4)
        for k in (1, 2)
    ]
    model.learn([result(plan, 10**8) for plan in plans])
    assert all(model.may_fit(plan) for plan in plans)
    assert model.may_fit(replace(PLAN, node_batch=256))
