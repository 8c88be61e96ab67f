"""bf16 is judged operator by operator, and by the direction of the step."""

from __future__ import annotations

from dataclasses import replace

import precision_cases
import pytest
import torch
from torch import nn

from launch.plan import Plan
from launch.training.autocast import internal_bf16
from launch.training.precision.check import PrecisionCheck
from launch.training.precision.figures import (
    MAX_OPERATOR_ERROR,
    OperatorFigures,
    StepFigures,
    find_obstacle,
)
from launch.training.precision.operators import OperatorCheck

# Of more samples the check would take as many as this machine computes quickly.
PLAN = Plan(strategy="sequential", node_batch=2)


def operator(**changes):
    values = {"layer": "conv1", "kind": "convolution", "error": 0.002}
    return OperatorFigures(**{**values, "exact_s": 1.0, "lower_s": 0.5, **changes})


def step(*operators, **changes):
    values = {"memory_format": "contiguous", "loss": 1.0, "exact_loss": 1.0}
    values |= {"gradient_errors": {"conv1.weight": 0.4}, "operators": operators}
    return StepFigures(**{**values, **changes})


@pytest.fixture(scope="module")
def sound():
    check = PrecisionCheck(PLAN, precision_cases.Sound(), None)
    return {name: list(check.measure(name)) for name in ("bf16", "bf16_internal")}


@pytest.mark.parametrize("precision", ["bf16", "bf16_internal"])
def test_sound_kernels_are_found_sound_in_both_memory_formats(sound, precision):
    figures = sound[precision]
    assert [found.memory_format for found in figures] == ["contiguous", "channels_last"]
    assert [found.find_fault() for found in figures] == [None, None]
    assert all(op.exact_s > 0 and op.lower_s > 0 for found in figures for op in found.operators)


def test_every_layer_is_tried_forward_and_backward(sound):
    tried = [(op.kind, op.layer) for op in sound["bf16"][0].operators]
    for layer in ("0", "3", "5"):
        assert tried.count(("convolution", layer)) == 1
        assert tried.count(("backward convolution", layer)) == 1
    for layer in ("9", "11"):  # forward, gradient of the input, gradient of the weights
        assert tried.count(("matrix product", layer)) == 3


def test_gradient_that_is_zero_but_for_rounding_is_not_judged(sound):
    """A bias in front of BatchNorm: in bf16 its gradient is a hundred times as large as in fp32."""
    assert "0.bias" not in sound["bf16"][0].gradient_errors
    assert "0.weight" in sound["bf16"][0].gradient_errors


def test_step_in_fp32_is_what_it_is_without_a_check():
    case = precision_cases.Sound()
    results = []
    for is_checked in (False, True):
        torch.manual_seed(0)
        model = case.model().eval()
        batch = torch.stack([case.dataset(None, train=True)[i][0] for i in range(4)])
        if is_checked:
            with OperatorCheck(model, "bf16"):
                model(batch).sum().backward()
        else:
            model(batch).sum().backward()
        results.append([parameter.grad for parameter in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@pytest.mark.gpu
def test_kernels_of_a_gpu_are_found_sound_in_both_memory_formats():
    check = PrecisionCheck(replace(PLAN, devices=("cuda:0",)), precision_cases.Sound(), None)
    assert [found.find_fault() for found in check.measure("bf16")] == [None, None]


@pytest.mark.gpu
def test_a_gpu_whose_first_step_loads_libraries_is_given_a_whole_batch():
    """Two samples take as long in any precision: bf16 would be left out, or not, by chance."""
    plan = replace(PLAN, devices=("cuda:0",), node_batch=32)
    _, targets = PrecisionCheck(plan, precision_cases.SlowAtFirst(), None)._batch
    assert len(targets) == 32


def test_model_without_pictures_is_tried_in_one_memory_format():
    class Flat(precision_cases.Sound):
        def model(self):
            return nn.Sequential(nn.Flatten(), nn.Linear(768, 4))

    (found,) = PrecisionCheck(PLAN, Flat(), None).measure("bf16")
    assert found.memory_format == "contiguous"


def test_what_a_block_lets_onednn_do_ends_with_it():
    before = torch.backends.mkldnn.conv.fp32_precision
    with internal_bf16():
        assert torch.backends.mkldnn.conv.fp32_precision == "bf16"
    assert torch.backends.mkldnn.conv.fp32_precision == before


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (precision_cases.WrongSign, "gradient of 0.0.weight differs by 200 % from fp32"),
        (precision_cases.NotANumber, "loss is nan instead of "),
        (precision_cases.NoProducts, "no convolution and no matrix product"),
    ],
)
def test_what_is_wrong_with_a_step_is_said(case, said):
    assert said in find_obstacle(PrecisionCheck(PLAN, case(), None).measure("bf16"))


def test_rounding_within_its_bound_and_more_speed_is_no_obstacle():
    assert find_obstacle([step(operator()), step(operator(lower_s=0.3))]) is None


@pytest.mark.parametrize("error", [2 * MAX_OPERATOR_ERROR, 0.75, 2.0, float("inf")])
def test_operator_that_errs_by_more_than_rounding_is_an_obstacle_in_any_format(error):
    wrong = step(operator(), operator(layer="conv2", error=error), memory_format="channels_last")
    said = find_obstacle([step(operator()), wrong])
    assert said.startswith("convolution of conv2 differs by ")
    assert said.endswith("channels_last")


def test_precision_must_be_faster_in_its_best_format_than_fp32_in_its_best():
    slow = step(operator(exact_s=1.0, lower_s=1.5), operator(layer="conv2"))
    said = find_obstacle([step(operator(exact_s=1.2), operator()), slow])
    assert said is None
    said = find_obstacle([step(operator(exact_s=1.0, lower_s=1.5)), step(operator(lower_s=1.2))])
    assert said == (
        "convolutions and matrix products take 1.20 times as long as in fp32, "
        "convolution of conv1 1.2 times"
    )
