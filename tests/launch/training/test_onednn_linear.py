"""Linear layers by oneDNN: the same numbers, forward and backward."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from launch.plan import Plan
from launch.strategies._settings import cpu_settings
from launch.training import onednn_linear
from launch.training.onednn_linear import linear, set_linear
from probes.hardware import Speeds

EXACT = 1e-5
"""Relative: fp32 with sums in another order."""


def test_layer_of_a_plan_without_it_is_torchs_own():
    own = nn.Linear.forward
    set_linear(Plan(strategy="sequential", node_batch=4))
    assert nn.Linear.forward is own


@pytest.mark.parametrize("shape", [(5, 12), (3, 4, 12), (12,), (0, 12)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_output_and_gradients_are_those_of_torch(monkeypatch, shape, has_bias):
    torch.manual_seed(1)
    layer = nn.Linear(12, 7, bias=has_bias)
    found = []
    for is_plain in (True, False):
        if not is_plain:
            monkeypatch.setattr(nn.Linear, "forward", onednn_linear._forward)
        inputs = torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape).requires_grad_()
        layer.zero_grad()
        output = layer(inputs)
        (output**2).sum().backward()
        found.append([output, inputs.grad, *(p.grad.clone() for p in layer.parameters())])
    for own, other in zip(*found, strict=True):
        torch.testing.assert_close(other, own, rtol=EXACT, atol=EXACT)


def test_gradient_of_a_gradient_is_that_of_torch(monkeypatch):
    """The story: the product in the backward pass had no gradient, which a loss with derivatives of
    the model needs."""
    torch.manual_seed(1)
    layers = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1))
    found = []
    for is_plain in (True, False):
        if not is_plain:
            monkeypatch.setattr(nn.Linear, "forward", onednn_linear._forward)
        layers.zero_grad()
        inputs = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()
        (slope,) = torch.autograd.grad(layers(inputs).sum(), inputs, create_graph=True)
        (slope**2).sum().backward()
        found.append([inputs.grad, *(layer.weight.grad.clone() for layer in layers[::2])])
    for own, other in zip(*found, strict=True):
        torch.testing.assert_close(other, own, rtol=EXACT, atol=EXACT)


def test_weight_that_is_not_trained_gets_no_gradient():
    weight = nn.Parameter(torch.ones(2, 3), requires_grad=False)
    inputs = torch.ones(4, 3, requires_grad=True)
    linear(inputs, weight, None).sum().backward()
    assert weight.grad is None
    assert torch.equal(inputs.grad, torch.full((4, 3), 2.0))


def test_lower_precision_is_left_to_torch():
    layer = nn.Linear(3, 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(torch.ones(4, 3), layer.weight, layer.bias).dtype == torch.bfloat16


def test_use_of_a_parameter_is_seen_by_who_looks_for_it():
    """As `late_update` does, which updates a parameter before its first use."""
    seen = []

    class Look(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.extend(value for value in args if isinstance(value, nn.Parameter))
            return function(*args, **(kwargs or {}))

    layer = nn.Linear(3, 2)
    with Look():
        linear(torch.ones(4, 3), layer.weight, layer.bias)
    assert any(value is layer.weight for value in seen)


@pytest.mark.parametrize(
    ("gain", "values"), [(None, (False,)), (1.05, (False,)), (1.3, (False, True))]
)
def test_it_is_tried_where_the_probe_saw_that_it_pays(two_cores, tiny_facts, gain, values):
    node = replace(two_cores, speeds=Speeds(onednn_product_gain=gain))
    choices = cpu_settings(tiny_facts, node)["onednn_linear"]
    assert (choices.values, choices.first) == (values, False)


@pytest.mark.parametrize(
    "plan",
    [
        Plan(strategy="threads", node_batch=8, threads_per_process=2, replicas=2),
        Plan(strategy="processes", node_batch=8, processes=2, replicas=2),
    ],
    ids=lambda plan: plan.strategy,
)
def test_training_gives_the_same_weights(training, plan):
    plain = training.run(plan, "Sgd")
    other = training.run(replace(plan, onednn_linear=True), "Sgd")
    for name, value in plain.items():
        torch.testing.assert_close(other[name], value, rtol=EXACT, atol=EXACT)
