"""Weight gradients that are computed when all micro-batches are through."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from launch.training.pipeline.deferred_weight_gradients import DeferredWeightGradients


class Special(nn.Linear):
    """May do anything."""


def gradients(layers: nn.Module, *batches: torch.Tensor) -> dict[str, torch.Tensor | None]:
    for batch in batches:
        layers(batch).abs().square().mean().backward()
    return {name: parameter.grad for name, parameter in layers.named_parameters()}


def late_gradients(layers: nn.Sequential, *batches: torch.Tensor) -> dict[str, torch.Tensor | None]:
    late = DeferredWeightGradients(layers)
    for batch in batches:
        late(batch).abs().square().mean().backward()
    late.finish()
    return {name: parameter.grad for name, parameter in layers.named_parameters()}


@pytest.mark.parametrize("shape", [(4, 3), (2, 5, 3)], ids=["vectors", "sequences"])
@pytest.mark.parametrize("bias", [True, False])
def test_they_are_the_sum_over_all_micro_batches(shape, bias):
    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Linear(3, 8, bias=bias),
        nn.ReLU(inplace=True),
        nn.Linear(8, 8, bias=bias),
        nn.ReLU(inplace=True),
        Special(8, 2),
    )
    same = copy.deepcopy(layers)
    batches = [torch.randn(shape) for _ in range(3)]
    expected = gradients(same, *batches)
    for name, gradient in late_gradients(layers, *batches).items():
        torch.testing.assert_close(gradient, expected[name])


def test_those_of_complex_layers_are_the_sum_too():
    """The story: the inputs were not conjugated."""
    torch.manual_seed(0)
    layers = nn.Sequential(*(nn.Linear(3, 3, dtype=torch.cfloat) for _ in range(3)))
    same = copy.deepcopy(layers)
    batches = [torch.randn(4, 3, dtype=torch.cfloat) for _ in range(3)]
    expected = gradients(same, *batches)
    for name, gradient in late_gradients(layers, *batches).items():
        torch.testing.assert_close(gradient, expected[name])


def test_they_come_once_to_whoever_waits_for_them():
    layers = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    calls = []
    layers[1].weight.register_post_accumulate_grad_hook(calls.append)
    late_gradients(layers, torch.randn(2, 3), torch.randn(2, 3))
    assert len(calls) == 1


def test_a_layer_that_hooks_watch_is_called_as_always():
    layers = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    calls = []
    layers[1].register_forward_hook(lambda *_: calls.append(1))
    late_gradients(layers, torch.randn(2, 3), torch.randn(2, 3))
    assert len(calls) == 2


def test_frozen_weights_have_none():
    layers = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2).requires_grad_(False))
    found = late_gradients(layers, torch.randn(2, 3))
    assert found["1.weight"] is None
    assert found["0.weight"] is not None


def test_weight_that_is_frozen_later_has_none():
    """The story: the step ended with PyTorch's error, where other plans train on."""
    layers = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    late = DeferredWeightGradients(layers)
    layers[1].weight.requires_grad_(False)
    late(torch.randn(2, 3)).sum().backward()
    late.finish()
    assert layers[1].weight.grad is None
    assert layers[1].bias.grad is not None


def test_nothing_is_left_from_one_step_to_the_next():
    layers = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    late = DeferredWeightGradients(layers)
    late(torch.randn(2, 3)).sum().backward()
    late.finish()
    layers.zero_grad()
    late.finish()
    assert layers[1].weight.grad is None
