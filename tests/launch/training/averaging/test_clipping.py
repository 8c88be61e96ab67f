"""Clipping over several workers gives what torch's own gives in one."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from launch.local_group.group import LocalThreadGroup
from launch.training.averaging.clipping import GradientClipper, clip_factor, square_sum


def clipped_by_torch(gradients: list[torch.Tensor], max_norm: float) -> list[torch.Tensor]:
    parameters = [nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.clone()
    nn.utils.clip_grad_norm_(parameters, max_norm)
    return [parameter.grad for parameter in parameters]


@pytest.mark.parametrize("max_norm", [0.0, 1e-3, 1.0, 1e6])
def test_parts_of_a_gradient_are_scaled_as_torch_scales_the_whole(max_norm):
    generator = torch.Generator().manual_seed(0)
    gradients = [torch.randn(size, generator=generator) for size in (1, 1000, 30, 7)]
    members = LocalThreadGroup.create([(), ()])
    parts = [gradients[:2], gradients[2:]]

    def work(rank: int) -> list[torch.Tensor]:
        clipper = GradientClipper(max_norm, members[rank])
        for _ in range(3):
            factor = clipper.factor(square_sum(parts[rank]))
        return [gradient * factor for gradient in parts[rank]]

    with ThreadPoolExecutor(2) as pool:
        ours = [gradient for part in pool.map(work, range(2)) for gradient in part]
    torch.testing.assert_close(ours, clipped_by_torch(gradients, max_norm))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_ends_as_with_torch(bad):
    gradients = [torch.tensor([1.0, bad]), torch.tensor([2.0])]
    factor = clip_factor(square_sum(gradients), 1.0)
    ours = [gradient * factor for gradient in gradients]
    torch.testing.assert_close(ours, clipped_by_torch(gradients, 1.0), equal_nan=True)


def test_a_short_gradient_is_left_as_it_is():
    assert clip_factor(0.0, 1.0) == 1.0
    assert clip_factor(4.0, 2.1) == 1.0


def test_rows_that_a_sparse_gradient_has_twice_are_added_up_before_they_are_squared():
    """Older releases of PyTorch take no norm of such a one, and a pipeline failed in its step."""
    rows, values = torch.tensor([[1, 1, 3]]), torch.tensor([[3.0], [1.0], [2.0]])
    gradient = torch.sparse_coo_tensor(rows, values, (5, 1))
    assert square_sum([gradient]) == pytest.approx(4.0**2 + 2.0**2)
