"""One process on a GPU draws what suits a GPU, on a CPU what suits a CPU."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from optuna.trial import FixedTrial
from strategy_homes import guessed

from launch.strategies import check_plan, load_strategy
from probes.hardware import GpuProcess

SEQUENTIAL = load_strategy("sequential")
suggested = partial(guessed, "sequential")


@pytest.fixture
def facts(tiny_facts):
    return replace(
        tiny_facts,
        precisions=("bf16_internal",),
        gpu_precisions=("bf16",),
        inputs=("files", "cache"),
        pixel_bytes=2**20,
    )


def with_gpus(node, *changes):
    """Let the first GPUs of a node differ from the others, and have free memory."""
    gpus = [replace(gpu, free_bytes=2**30) for gpu in node.gpus]
    for number, change in enumerate(changes):
        gpus[number] = replace(gpus[number], **change)
    return replace(node, gpus=tuple(gpus))


def test_each_device_has_the_settings_of_its_kind_the_gpu_first(facts, gpu_node):
    on_gpu, on_cpu = suggested(facts, with_gpus(gpu_node))
    assert (on_gpu.devices, on_gpu.precision, on_gpu.input) == (("cuda:0",), "bf16", "device")
    assert (on_cpu.devices, on_cpu.precision, on_cpu.input) == (("cpu",), "bf16_internal", "cache")
    assert (on_gpu.allocator, on_cpu.allocator) == ("default", "retain")
    for plan in (on_gpu, on_cpu):
        check_plan(plan)


def test_gpu_may_replay_its_step(facts, gpu_node):
    replaying, _ = suggested(facts, gpu_node, **{"sequential.gpu.cuda_graph": True})
    assert replaying.cuda_graph


@pytest.mark.parametrize(
    ("changes", "device"),
    [
        ([{"compute_mode": "prohibited"}, {"mig_enabled": True}], "cuda:2"),
        ([{"cuda_index": None}], "cuda:1"),
        ([{"other_processes": (GpuProcess(pid=1),)}], "cuda:1"),
    ],
)
def test_gpu_is_one_that_can_be_trained_on_and_that_nobody_else_uses(
    changes, device, facts, gpu_node
):
    """The story: the GPU of the lowest number was drawn, whether it could be used or not."""
    assert suggested(facts, with_gpus(gpu_node, *changes))[0].devices == (device,)


def test_node_whose_gpus_cannot_be_used_trains_on_its_cpu(facts, gpu_node):
    node = with_gpus(gpu_node, *[{"mig_enabled": True}] * 4)
    assert [plan.devices for plan in suggested(facts, node)] == [("cpu",)]


def test_choices_of_a_name_are_the_same_on_every_device(facts, gpu_node):
    """A study keeps one distribution per name."""
    seen: dict[str, tuple[object, ...]] = {}

    class Noting(FixedTrial):
        def suggest_categorical(self, name, choices):
            assert seen.setdefault(name, tuple(choices)) == tuple(choices)
            return super().suggest_categorical(name, choices)

    node = with_gpus(gpu_node)
    for guess in SEQUENTIAL.first_guesses(facts, node):
        SEQUENTIAL.suggest(Noting(guess), facts, node)
    assert seen["sequential.precision"] == ("bf16_internal",)
    assert seen["sequential.gpu.precision"] == ("bf16",)
