"""What a worker without samples adds to the gradients of the others."""

from __future__ import annotations

import pytest
import tiny_cases
import torch
from torch import nn

from launch.plan import Plan
from launch.training.ddp_replica import _ShareLoss


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_worker_without_samples_has_a_gradient_of_zeros(dtype):
    """The story: where the first parameter is complex, torch refused to begin at its sum: "grad can
    be implicitly created only for real scalar outputs", as soon as an epoch's end left a worker
    nothing."""
    weight = nn.Parameter(torch.ones(3, dtype=dtype))
    plan = Plan(strategy="sequential", node_batch=8)
    loss = _ShareLoss(plan, tiny_cases.Sgd(), nn.ParameterList([weight]), "cpu")
    loss(None, 0.0, is_full=False).backward()
    assert torch.equal(weight.grad, torch.zeros(3, dtype=dtype))
