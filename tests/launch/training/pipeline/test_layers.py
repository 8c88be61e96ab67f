"""What layers take, give and cost, and what goes over a wire between them."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from launch.errors import UseCaseError
from launch.plan import Plan
from launch.training.pipeline.layers import boundary_specs, layer_costs, measure_layers
from launch.training.pipeline.pytree import flatten, unflatten

CPU = torch.device("cpu")
PLAN = Plan(strategy="pipeline", node_batch=8)
PICTURES = torch.randn(4, 3, 8, 8)


class Both(nn.Module):
    """Gives more than a tensor."""

    def forward(self, value):
        return {"sum": value + 1, "pair": (value.flatten(1), 3)}


class First(nn.Module):
    def forward(self, value):
        return value["sum"]


def may_cut(*layers: nn.Module) -> list[bool]:
    forms = boundary_specs(layers, PICTURES, PLAN, CPU)
    costs = layer_costs(layers, [1.0] * len(layers), forms)
    return [cost.may_end_stage for cost in costs[:-1]]


def test_layers_that_share_a_weight_are_not_parted():
    tied = nn.Conv2d(3, 3, 1)
    tied.weight = (first := nn.Conv2d(3, 3, 1)).weight
    assert may_cut(nn.ReLU(), first, nn.ReLU(), tied, nn.ReLU()) == [True, False, False, True]


def test_layers_that_share_a_buffer_are_not_parted():
    norm = nn.BatchNorm2d(3, affine=False)
    assert may_cut(norm, nn.ReLU(), norm, nn.ReLU()) == [False, False, True]


def test_what_is_no_tensor_is_not_sent():
    class Opaque(nn.Module):
        def forward(self, value):
            return {"unknown": object(), "sum": value}

    assert may_cut(nn.ReLU(), Opaque(), First(), nn.ReLU()) == [True, False, True]


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_what_comes_over_the_wire_is_what_was_sent_in_its_strides(memory_format):
    layer = nn.Conv2d(3, 6, 3).to(memory_format=memory_format)
    pictures = PICTURES.to(memory_format=memory_format)
    (form,) = boundary_specs([layer, nn.ReLU()], pictures, PLAN, CPU)
    sent = layer(pictures)
    (wired,) = form.wire(sent)
    assert wired.is_contiguous()
    assert form.num_bytes == 4 * sent.numel()
    received = form.unwire([wired.detach()])
    assert torch.equal(received, sent)
    assert received.stride() == sent.stride()
    assert form.tensors[0].on_wire().shape == wired.shape


def test_nested_values_go_from_layer_to_layer():
    (_, form) = boundary_specs([nn.ReLU(), Both(), First()], PICTURES, PLAN, CPU)
    value = Both()(PICTURES)
    received = form.unwire(form.wire(value))
    assert torch.equal(received["pair"][0], value["pair"][0])
    assert received["pair"][1] == 3


def test_a_form_says_whether_a_gradient_comes_back():
    frozen = nn.Conv2d(3, 3, 1).requires_grad_(False)
    forms = boundary_specs([frozen, nn.Conv2d(3, 3, 1), nn.ReLU()], PICTURES, PLAN, CPU)
    assert [form.tensors[0].requires_grad for form in forms] == [False, True]


def test_measuring_leaves_no_trace():
    layers = nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.Dropout(), nn.Flatten()
    )
    before = {name: value.clone() for name, value in layers.state_dict().items()}
    random = torch.get_rng_state()
    times_s = measure_layers(layers, PICTURES, PLAN, CPU, 2)
    assert len(times_s) == 5
    assert all(time_s > 0 for time_s in times_s)
    assert all(torch.equal(value, before[name]) for name, value in layers.state_dict().items())
    assert all(parameter.grad is None for parameter in layers.parameters())
    assert torch.equal(torch.get_rng_state(), random)


def test_nested_tensors_are_taken_apart_and_put_together_again():
    value = {"a": [torch.ones(2), 3, None], "b": (torch.zeros(()), "text", True, 0.5)}
    nesting, tensors = flatten(value, "targets")
    again = unflatten(json.loads(json.dumps(nesting)), tensors)
    assert again["a"][1:] == [3, None]
    assert again["b"][1:] == ("text", True, 0.5)
    assert again["a"][0] is value["a"][0]
    assert again["b"][0] is value["b"][0]


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", {1: torch.ones(1)}, [object()]])
def test_what_is_no_tensor_number_or_text_is_refused(value):
    with pytest.raises(UseCaseError, match=r"^targets hold a \w+, .*: use tensors"):
        flatten(value, "targets")
