"""Which plans cannot fit, from what others needed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from imagined_machines import CASE, Machine, node_of

from launch.plan import Plan
from planner.search.memory import MemoryModel
from planner.search.plan_search import PlanSearch
from planner.trials.result import Outcome, TrialResult
from probes.hardware import Memory

PLAN = Plan(strategy="processes", node_batch=32, processes=2, replicas=2)
SMALL = replace(node_of(2), memory=Memory(total_bytes=2**33, usable_bytes=2**33))


def result(plan: Plan, peak_bytes: int | None, outcome: Outcome = Outcome.OK) -> TrialResult:
    known = Machine(parts=1, fixed=0.1).result(plan, outcome=outcome)
    return replace(known, peak_memory_bytes=peak_bytes)


CONTAINER = Memory(total_bytes=2**35, usable_bytes=2**35, shm_bytes=2**26)
ON_GPU = Plan(strategy="sequential", node_batch=32, devices=("cuda:0",))


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


def test_plan_whose_loading_processes_would_fill_shared_memory_is_not_tried():
    """In a container with 64 MiB of it, none of the first guesses on a GPU would have worked."""
    node = replace(node_of(8, gpus=1), memory=CONTAINER)
    model = MemoryModel(replace(CASE, sample_bytes=600_000), node)
    plan = replace(ON_GPU, loader_workers=2)
    assert model.may_fit(plan)
    assert not model.may_fit(replace(plan, loader_workers=4))
    assert not model.may_fit(replace(plan, node_batch=64))
    assert not model.may_fit(replace(PLAN, loader_workers=2))  # what is read ahead waits there
    assert model.may_fit(replace(plan, node_batch=256, loader_workers=0))
    assert MemoryModel(CASE, node).may_fit(replace(plan, loader_workers=4))


def test_plans_whose_batches_would_fill_shared_memory_together_do_not_run_side_by_side():
    model = MemoryModel(
        replace(CASE, sample_bytes=600_000), replace(node_of(8, gpus=1), memory=CONTAINER)
    )
    loading, on_gpu = replace(PLAN, loader_workers=1), replace(ON_GPU, loader_workers=2)
    assert model.fit_side_by_side([loading], {})
    assert model.fit_side_by_side([loading, PLAN, on_gpu], {})
    assert not model.fit_side_by_side([loading, replace(loading, allocator="retain")], {})


def test_what_filled_shared_memory_shuts_out_plans_that_send_as_much_and_no_others():
    """The story: a plan whose 16 loading processes had filled it shut out its batch altogether, as
    if that had been too large for the GPU."""
    model = MemoryModel(CASE, node_of(8, gpus=1))
    plan = Plan(strategy="sequential", node_batch=512, devices=("cuda:0",), loader_workers=8)
    reason = "worker 0: SharedMemoryError: loader_workers=8, node_batch=512 and no room left"
    model.learn([replace(result(plan, None, Outcome.OUT_OF_MEMORY), reason=reason)])
    assert not model.may_fit(plan)
    assert not model.may_fit(replace(plan, strategy="gpu_data", loader_workers=4, node_batch=1024))
    assert model.may_fit(replace(plan, loader_workers=4))
    assert model.may_fit(replace(plan, loader_workers=0, node_batch=1024))
    assert model.may_fit(replace(PLAN, loader_workers=8, node_batch=512))


@pytest.mark.parametrize(
    "reason",
    [
        "worker 0: RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.",
        "worker 0: MemoryError: Caught MemoryError in DataLoader worker process 3.",
        "worker 0: killed by signal 9 (SIGKILL) (out of memory)",
    ],
)
def test_what_ran_out_of_memory_with_loading_processes_is_tried_with_fewer_of_them(reason):
    """The story: 8 of them had the machine's memory, and its batch was never tried again."""
    model = MemoryModel(CASE, node_of(8, gpus=1))
    plan = replace(ON_GPU, node_batch=512, loader_workers=8)
    model.learn([replace(result(plan, None, Outcome.OUT_OF_MEMORY), reason=reason)])
    assert not model.may_fit(plan)
    assert not model.may_fit(replace(plan, loader_workers=16, node_batch=1024))
    assert model.may_fit(replace(plan, loader_workers=4))
    assert model.may_fit(replace(plan, loader_workers=0))


def test_plan_that_filled_a_gpu_is_not_tried_with_fewer_loading_processes():
    model = MemoryModel(CASE, node_of(8, gpus=1))
    plan = replace(ON_GPU, node_batch=512, loader_workers=8)
    reason = "worker 0: OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."
    model.learn([replace(result(plan, None, Outcome.OUT_OF_MEMORY), reason=reason)])
    assert not model.may_fit(replace(plan, loader_workers=0))


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


HEAVY = replace(CASE, kept_bytes_per_sample=10**8, gpu_batch_choices=(32, 128, 512, 1024))
LITTLE = replace(node_of(2), memory=Memory(total_bytes=2**32, usable_bytes=2**32))
SMALL_GPUS = replace(
    node_of(8), gpus=tuple(replace(g, free_bytes=2**33) for g in node_of(8, gpus=2).gpus)
)


@pytest.mark.parametrize(
    ("strategy", "node", "limit_bytes"),
    [("gpu_data", SMALL_GPUS, 2**33), ("threads", LITTLE, 2**32), ("processes", LITTLE, 2**32)],
)
def test_plan_whose_activations_cannot_fit_is_not_proposed(strategy, node, limit_bytes):
    """The story: what a sample keeps was measured and not used: first came 512 of 0.1 GB each."""
    tried = Machine(parts=1, fixed=0.1).search(PlanSearch((strategy,), HEAVY, node), 8)
    assert len(tried) == 8
    for plan in tried:
        gpus = plan.processes if strategy == "gpu_data" else 1
        exact = plan.precision == "fp32" and not plan.compile
        kept = 10**8 * (1.0 if exact else 0.5)
        assert plan.node_batch / plan.micro_batches / gpus * kept < limit_bytes


def test_plan_is_limited_by_the_gpus_that_it_has_and_by_no_smaller_one():
    """The story: beside a small GPU, nothing was tried on the large one that needed more."""
    small, large = SMALL_GPUS.gpus
    node = replace(SMALL_GPUS, gpus=(small, replace(large, free_bytes=2**36)))
    model = MemoryModel(HEAVY, node)
    plan = Plan(strategy="sequential", node_batch=512, devices=("cuda:1",))
    assert model.may_fit(plan)
    assert not model.may_fit(replace(plan, devices=("cuda:0",)))
    both = replace(plan, strategy="gpu_data", processes=2, replicas=2, devices=("cuda:0", "cuda:1"))
    assert not model.may_fit(both)


def test_samples_that_may_differ_shut_out_no_plan_before_its_memory_is_known():
    own = replace(HEAVY, own_methods=("collate",))
    assert MemoryModel(own, LITTLE).may_fit(replace(PLAN, node_batch=64))
    assert not MemoryModel(HEAVY, LITTLE).may_fit(replace(PLAN, node_batch=64))


def test_first_peak_tells_what_larger_batches_need_where_a_sample_was_measured():
    model = MemoryModel(replace(CASE, kept_bytes_per_sample=30_000_000), SMALL)
    model.learn([result(PLAN, int(2e9 + 3e7 * PLAN.node_batch))])
    peak = model.peak_bytes(replace(PLAN, node_batch=256))
    assert peak == pytest.approx(2e9 + 3e7 * 256, rel=0.1)


def test_two_plans_on_a_gpu_of_exclusive_mode_never_run_side_by_side():
    """The story: CUDA refused the second one, which counted as a plan that crashes."""
    node = node_of(8, gpus=2)
    gpus = tuple(replace(gpu, compute_mode="exclusive_process") for gpu in node.gpus)
    model = MemoryModel(CASE, replace(node, gpus=gpus))
    on_first = Plan(strategy="sequential", node_batch=32, devices=("cuda:0",))
    larger, on_second = replace(on_first, node_batch=64), replace(on_first, devices=("cuda:1",))
    assert not model.fit_side_by_side([PLAN, on_first, larger], {})
    assert model.fit_side_by_side([PLAN, on_first, on_second], {})
    assert MemoryModel(CASE, node).fit_side_by_side([PLAN, on_first, larger], {})


def test_memory_that_plans_hold_of_a_gpu_is_the_most_of_trials_and_of_those_that_run():
    on_gpu = Plan(strategy="sequential", node_batch=32, devices=("cuda:0",))
    larger = replace(on_gpu, node_batch=64)
    model = MemoryModel(CASE, node_of(8, gpus=1))
    held = [replace(result(on_gpu, None), peak_device_memory_bytes=gib * 2**30) for gib in (3, 2)]
    model.learn(held)
    assert model.held_gpu_bytes([on_gpu, larger, PLAN], {}) == 3 * 2**30
    assert model.held_gpu_bytes([on_gpu, larger], {on_gpu: 2**30, larger: 5 * 2**30}) == 2**33
