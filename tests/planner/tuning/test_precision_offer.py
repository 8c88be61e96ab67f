"""bf16 is offered where a check of the use case speaks for it, and the reason said where not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from sample_plan import CASE

from launch.plan import Plan
from launch.workload import Workload
from planner.errors import NoPlanError
from planner.trials.runner import TrialRunner
from planner.tuning.precision_offer import offer_precisions
from planner.tuning.tune_request import TuneRequest
from probes.node import probe
from tests.planner.tuning.recorded_search import GPU, NODE

CASES = Path(__file__).parents[2] / "launch/cases/precision_cases.py"
GPU_NODE = replace(NODE, gpus=(GPU,))
AUTO = TuneRequest(
    workload=Workload(use_case="x"), budget_s=300, precision="auto", strategies=("threads",)
)
ONLY = replace(AUTO, precision="bf16")


def check(**obstacles):
    """Answer as a machine does on which these precisions are no good, by their device."""

    def answer(plan, precisions, *, time_limit_s):
        device = plan.devices[0].partition(":")[0]
        return {name: obstacles.get(f"{name}_{device}") for name in precisions}

    return answer


def refuse_to_check(plan, precisions, *, time_limit_s):
    raise AssertionError("nothing is to be checked")


def test_fp32_alone_needs_no_check():
    request = replace(AUTO, precision="fp32")
    assert offer_precisions(CASE, request, NODE, refuse_to_check) == (CASE, ())


def test_what_is_good_is_offered_beside_fp32_or_instead_of_it():
    case, reasons = offer_precisions(CASE, AUTO, NODE, check())
    assert case.precisions == ("fp32", "bf16", "bf16_internal")
    assert reasons == ()
    case, _ = offer_precisions(CASE, ONLY, NODE, check())
    assert case.precisions == ("bf16", "bf16_internal")


def test_what_is_no_good_is_left_out_with_its_reason():
    case, reasons = offer_precisions(CASE, AUTO, NODE, check(bf16_cpu="gradient of x differs"))
    assert case.precisions == ("fp32", "bf16_internal")
    assert reasons == ("bf16 is not offered: gradient of x differs",)


def test_where_only_bf16_is_asked_for_and_none_is_good_there_is_no_plan():
    slow = check(bf16_cpu="is slow", bf16_internal_cpu="is slow too")
    with pytest.raises(NoPlanError, match=r"^bf16 is not offered: is slow; bf16_int.* too: use --"):
        offer_precisions(CASE, ONLY, NODE, slow)
    case, reasons = offer_precisions(CASE, AUTO, NODE, slow)
    assert case.precisions == ("fp32",)
    assert len(reasons) == 2


def test_gpu_and_cpu_are_judged_each_by_itself():
    slow = check(bf16_cpu="is slow", bf16_internal_cpu="is slow too")
    case, reasons = offer_precisions(CASE, replace(AUTO, strategies=None), GPU_NODE, slow)
    assert case.precisions == ("fp32",)
    assert case.gpu_precisions == ("fp32", "bf16")
    assert reasons[0] == "bf16 is not offered on the CPU: is slow"


def test_gpu_that_no_wanted_strategy_uses_is_not_judged():
    case, reasons = offer_precisions(CASE, AUTO, GPU_NODE, check(bf16_cuda="is slow"))
    assert case.gpu_precisions == ("fp32",)
    assert reasons == ()


def test_cpu_that_no_wanted_strategy_uses_is_not_judged():
    """The story: a fifth of the budget went into a check of what no plan could have."""
    slow = check(bf16_cpu="is slow", bf16_internal_cpu="is slow too")
    for request, expected in ((AUTO, ("fp32", "bf16")), (ONLY, ("bf16",))):
        asked = replace(request, strategies=("gpu_data",))
        case, reasons = offer_precisions(CASE, asked, GPU_NODE, slow)
        assert (case.precisions, case.gpu_precisions) == (("fp32",), expected)
        assert reasons == ()


@pytest.fixture(scope="module")
def obstacles(servers):
    """What checks of both precisions find, by the use case."""
    node = probe(quick=True)
    plan = Plan(strategy="sequential", node_batch=8)

    @cache
    def find(case, limit_s=100.0):
        runner = TrialRunner(Workload(use_case=f"{CASES}:{case}"), node, servers)
        precisions = ("bf16", "bf16_internal")
        return runner.check_precisions(plan, precisions, time_limit_s=limit_s)

    return find


def test_numbers_of_sound_kernels_are_no_obstacle(obstacles):
    for obstacle in obstacles("Sound").values():
        assert obstacle is None or "times as long as in fp32" in obstacle


def test_wrong_kernel_is_named_with_its_layer_and_its_error(obstacles):
    obstacle = obstacles("WrongKernel")["bf16"]
    assert obstacle.startswith("matrix product of ")
    assert "differs by" in obstacle
    assert "where rounding explains 1.6 %" in obstacle
    internal = obstacles("WrongKernel")["bf16_internal"]
    assert internal is None or "times as long" in internal


def test_error_in_bf16_is_a_reason_of_one_line(obstacles):
    assert obstacles("Raises")["bf16"] == "RuntimeError: no kernel for bf16"


def test_process_that_dies_of_one_precision_leaves_the_other_to_be_tried(obstacles):
    found = obstacles("Dies")
    assert found["bf16"].startswith("the process that tried it failed: ")
    assert "SIGILL" in found["bf16"]
    internal = found["bf16_internal"]
    assert internal is None or "times as long" in internal


def test_check_that_takes_too_long_is_a_reason_too(obstacles):
    found = obstacles("Sound", 0.01)
    assert found["bf16"] == "its check took more than 0 s: raise --budget"
