"""One process per GPU; on a machine without any, CPU workers run the same lines."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from one_process import TOLERANCE, error_of
from strategy_homes import guessed

from launch.errors import InvalidPlanError
from launch.plan import Plan
from launch.strategies import check_plan, load_strategy
from probes.hardware import Gpu, GpuProcess

PLAN = Plan(strategy="gpu_data", node_batch=8, processes=2, replicas=2)
suggested = partial(guessed, "gpu_data")


@pytest.mark.parametrize("case", ["Sgd", "Tied", "Uneven", "DecayedRest", "TakesTurns"])
def test_weights_equal_those_of_one_process(case, training):
    assert error_of(training, PLAN, case, epochs=2) < TOLERANCE


def test_micro_batches_change_nothing(training):
    plan = replace(PLAN, micro_batches=2)
    assert error_of(training, plan, "DecayedRest", epochs=2) < TOLERANCE


def test_a_micro_batch_is_copied_when_its_turn_comes(training):
    """The story: a worker had all of its share finished before the first was computed, so that
    micro-batches saved nothing of what photos take in fp32."""
    plan = replace(PLAN, node_batch=16, micro_batches=4, memory_format="channels_last")
    training.run(plan, "ForgetsPictures")


def test_buffer_that_has_another_size_on_each_gpu_is_left_to_each(training):
    """The story: each worker took part in a broadcast of as many bytes as its own buffer had."""
    assert training.run(PLAN, "UnevenBuffers")["1.rows"].shape == (6, 2)


def test_one_device_trains_without_a_group(training):
    assert error_of(training, replace(PLAN, processes=1, replicas=1), "Sgd") < TOLERANCE


def test_all_gpus_are_guessed_first_and_then_half_of_them(tiny_facts, gpu_node):
    devices = [plan.devices for plan in suggested(tiny_facts, gpu_node)]
    assert devices == [
        ("cuda:0", "cuda:1", "cuda:2", "cuda:3"),
        ("cuda:0", "cuda:1"),
        ("cuda:0",),
    ]


def test_workers_share_all_cores(tiny_facts, gpu_node):
    assert [plan.threads for plan in suggested(tiny_facts, gpu_node)] == [4, 4, 4]


def test_no_more_gpus_are_used_than_there_are_cores(tiny_facts, gpu_node):
    one_core = replace(gpu_node, cpu=replace(gpu_node.cpu, usable_cores=1))
    assert [plan.processes for plan in suggested(tiny_facts, one_core)] == [1]


def test_a_gpu_that_is_in_use_is_taken_last(tiny_facts, gpu_node):
    taken = replace(gpu_node.gpus[0], other_processes=(GpuProcess(pid=1),))
    node = replace(gpu_node, gpus=(taken, *gpu_node.gpus[1:]))
    assert suggested(tiny_facts, node)[1].devices == ("cuda:1", "cuda:2")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"compute_mode": "prohibited"}, "GPU 3 has compute mode prohibited"),
        ({"mig_enabled": True}, "GPU 3 is cut up by MIG"),
        ({"mig_enabled": True, "cuda_index": None}, "GPU 3 is cut up by MIG"),
        ({"cuda_index": None}, "GPU 3 is not shown by CUDA"),
        (
            {"compute_mode": "exclusive_process", "other_processes": (GpuProcess(pid=1),)},
            "GPU 3 has compute mode exclusive_process and is taken by another process",
        ),
    ],
)
def test_a_gpu_that_cannot_be_trained_on_is_the_obstacle(changes, reason, tiny_facts, two_cores):
    gpu = replace(Gpu(nvml_index=3, cuda_index=0), **changes)
    node = replace(two_cores, gpus=(gpu,))
    obstacle = load_strategy("gpu_data").obstacle(tiny_facts, node)
    assert obstacle == f"no usable GPU: {reason}"


def test_a_node_without_gpus_says_why(tiny_facts, two_cores):
    node = replace(two_cores, gpu_reason="no NVIDIA driver")
    obstacle = load_strategy("gpu_data").obstacle(tiny_facts, node)
    assert obstacle == "no usable GPU: no NVIDIA driver"


def test_gpus_that_torch_could_not_name_are_no_reason_by_themselves(tiny_facts, two_cores):
    """The story: where torch was too new for the driver, its GPU was 'not shown by CUDA'."""
    reason = "torch sees no GPU: its CUDA may be newer than the driver"
    node = replace(two_cores, gpus=(Gpu(nvml_index=0),), gpu_reason=reason)
    assert load_strategy("gpu_data").obstacle(tiny_facts, node) == f"no usable GPU: {reason}"
    cut_up = replace(node, gpus=(Gpu(nvml_index=0, mig_enabled=True),))
    obstacle = load_strategy("gpu_data").obstacle(tiny_facts, cut_up)
    assert obstacle == "no usable GPU: GPU 0 is cut up by MIG"


def test_only_one_process_replays_its_step(tiny_facts, gpu_node):
    wish = {"gpu_data.cuda_graph": True}
    replays = [plan.cuda_graph for plan in suggested(tiny_facts, gpu_node, **wish)]
    assert replays == [False, False, True]
    plan = replace(PLAN, devices=("cuda:0", "cuda:1"), cuda_graph=True)
    with pytest.raises(InvalidPlanError, match="processes=2 and cuda_graph=True: only one"):
        check_plan(plan)


@pytest.mark.parametrize("devices", [("cuda:0", "cuda:0"), ("cuda:0",), ("cuda:0", "cpu")])
def test_two_processes_never_share_a_gpu(devices):
    with pytest.raises(InvalidPlanError, match="strategy=gpu_data and devices="):
        check_plan(replace(PLAN, devices=devices))


def test_a_gpu_has_no_precision_of_onednn():
    with pytest.raises(
        InvalidPlanError, match=r"precision=bf16_internal and devices=cuda:0: .*bf16"
    ):
        Plan(strategy="sequential", node_batch=8, devices=("cuda:0",), precision="bf16_internal")


@pytest.mark.parametrize(
    ("pixel_bytes", "expected"), [(2**29, "device"), (2**30, "cache"), (None, "files")]
)
def test_pictures_go_to_the_gpu_where_they_fill_no_more_than_half_of_it(
    pixel_bytes, expected, tiny_facts, gpu_node
):
    gpus = tuple(replace(gpu, free_bytes=2**30 + 2**20) for gpu in gpu_node.gpus)
    inputs = ("files",) if pixel_bytes is None else ("files", "cache")
    facts = replace(tiny_facts, pixel_bytes=pixel_bytes, inputs=inputs)
    assert suggested(facts, replace(gpu_node, gpus=gpus))[0].input == expected


ON_GPU = Plan(strategy="gpu_data", node_batch=8, devices=("cuda:0",))


@pytest.mark.gpu
@pytest.mark.parametrize("case", ["Sgd", "Tied", "Uneven", "AdamW"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"micro_batches": 2},
        {"cuda_graph": True},
        {"cuda_graph": True, "micro_batches": 2, "memory_format": "channels_last"},
        {"fused_optimizer": True, "options": {"cudnn_benchmark": True}},
    ],
    ids=str,
)
def test_weights_from_a_gpu_equal_those_of_one_process(case, changes, training):
    error = error_of(training, replace(ON_GPU, **changes), case, epochs=2)
    # cuDNN's convolutions round to TF32 by torch's default.
    assert error < (TOLERANCE if case == "Tied" else 1e-2)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two GPUs")
@pytest.mark.parametrize("case", ["Sgd", "Tied", "Uneven", "DecayedRest", "TakesTurns"])
def test_weights_from_two_gpus_equal_those_of_one_process(case, training):
    error = error_of(training, replace(PLAN, devices=("cuda:0", "cuda:1")), case, epochs=2)
    assert error < (1e-2 if case in ("Sgd", "Uneven") else TOLERANCE)


@pytest.mark.gpu
def test_running_statistics_are_those_of_the_steps_that_count(training):
    """A recording is warmed up by passes of its own, which a normalising layer would take down."""
    plain = training.run(ON_GPU, "Normed")
    replayed = training.run(replace(ON_GPU, cuda_graph=True), "Normed")
    assert plain.keys() == replayed.keys()
    assert all(torch.allclose(plain[k], replayed[k], rtol=1e-2, atol=1e-3) for k in plain)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("LooksAtValues", "a step that CUDA cannot record"),
        ("PutsBuffers", "a step that puts another tensor in the place of buffer '1.mean'"),
    ],
)
def test_a_step_that_cannot_be_recorded_is_one_line(case, reason, training):
    plan = replace(ON_GPU, cuda_graph=True)
    failure = training.failure_of(case, plan)
    assert failure.error == "InvalidPlanError"
    assert f"cuda_graph=True and {reason}" in failure.message
