"""Numbers that CUDA gives the GPUs of a plan where it is launched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launch.errors import InvalidPlanError
from launch.plan import Plan
from launch.strategies._gpus import explain_kinds, find_devices
from probes.cuda_devices import number_gpus
from probes.hardware import ALL_HIDDEN, ORDER_UNKNOWN

ON_TWO = Plan(
    strategy="gpu_data", node_batch=8, processes=2, replicas=2, devices=("cuda:1", "cuda:3")
)
ON_ONE = Plan(strategy="sequential", node_batch=8, devices=("cuda:1",))


def shown(node, *indices):
    """Give a node of which CUDA shows these GPUs alone, as CUDA_VISIBLE_DEVICES lets it."""
    return replace(node, gpus=number_gpus(node.gpus, [f"GPU-{index}" for index in indices]))


def mixed(node):
    """Give a node whose first GPU is of another kind."""
    return replace(node, gpus=(replace(node.gpus[0], name="small"), *node.gpus[1:]))


def test_numbers_that_cuda_shows_stay_as_they_are(gpu_node):
    assert find_devices(ON_TWO, gpu_node) == ("cuda:1", "cuda:3")
    assert find_devices(ON_ONE, shown(gpu_node, 2, 3)) == ("cuda:1",)
    assert find_devices(ON_ONE, shown(mixed(gpu_node), 3, 1)) == ("cuda:1",)


def test_equal_gpus_take_the_place_of_those_that_cuda_does_not_show(gpu_node):
    """The story: a plan that had found cuda:0 in use ended in torch's error with one GPU shown."""
    assert find_devices(ON_ONE, shown(gpu_node, 1)) == ("cuda:0",)
    assert find_devices(ON_TWO, shown(gpu_node, 1, 3)) == ("cuda:0", "cuda:1")


@pytest.mark.parametrize(
    ("plan", "indices", "said"),
    [
        (ON_TWO, (1,), "devices=cuda:1,cuda:3 and CUDA shows cuda:0 on test: set CUDA_VISIBLE_"),
        (ON_ONE, (), "devices=cuda:1 and CUDA shows no GPU on test: set CUDA_VISIBLE_DEVICES"),
    ],
)
def test_fewer_gpus_than_the_plan_has_are_refused(plan, indices, said, gpu_node):
    with pytest.raises(InvalidPlanError, match=said):
        find_devices(plan, shown(gpu_node, *indices))


def test_gpu_that_may_be_of_another_kind_takes_no_ones_place(gpu_node):
    with pytest.raises(InvalidPlanError, match="devices=cuda:1 and CUDA shows cuda:0 on test"):
        find_devices(ON_ONE, shown(mixed(gpu_node), 1))


def test_gpus_of_different_kinds_that_are_all_hidden_are_refused(gpu_node):
    """The story: workers ended in torch's error, as if nothing were known of CUDA's numbers."""
    hidden = replace(shown(mixed(gpu_node)), gpu_reason=ALL_HIDDEN)
    with pytest.raises(InvalidPlanError, match="devices=cuda:1 and CUDA shows no GPU on test"):
        find_devices(ON_ONE, hidden)


def test_what_is_not_known_of_cudas_numbers_refuses_no_plan(gpu_node, two_cores):
    assert find_devices(ON_ONE, shown(mixed(gpu_node))) == ("cuda:1",)
    assert find_devices(ON_ONE, two_cores) == ("cuda:1",)


def test_gpus_of_different_kinds_are_named_as_cuda_numbers_them(gpu_node):
    said = explain_kinds(ON_TWO, shown(mixed(gpu_node), 1, 0))
    assert "the plan trains on cuda:1 (small), cuda:3, and was measured on those that CUDA" in said
    assert "trains on cuda:1, and" in explain_kinds(ON_ONE, shown(mixed(gpu_node)))
    assert explain_kinds(ON_ONE, gpu_node) is None
    assert explain_kinds(replace(ON_ONE, devices=("cpu",)), mixed(gpu_node)) is None


def test_kinds_are_named_where_a_quick_probe_of_a_host_does_not_know_which_is_which(gpu_node):
    """The story: `launch --hosts` named numbers alone, and said nothing of what they stand for."""
    node = replace(shown(mixed(gpu_node)), gpu_reason=ORDER_UNKNOWN)
    assert "trains on cuda:1, cuda:3 (of imagined, small), and" in explain_kinds(ON_TWO, node)


def test_cpus_are_no_matter_of_cuda(gpu_node):
    plan = Plan(strategy="sequential", node_batch=8)
    assert find_devices(plan, shown(gpu_node)) == ("cpu",)
