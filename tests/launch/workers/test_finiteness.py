"""Which parameters still have numbers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from launch.errors import NotFiniteError
from launch.workers.finiteness import check_finite_parameters


@pytest.mark.parametrize("number", [float("nan"), float("inf"), complex(1, float("nan"))])
def test_parameter_that_is_no_number_is_named_with_the_step(number):
    """The story: complex ones were not looked at, and weights of NaN were stored as if good."""
    value = torch.ones(3, dtype=torch.complex64 if isinstance(number, complex) else torch.float32)
    value[1] = number
    with pytest.raises(NotFiniteError, match=r"parameter 'w' is NaN or infinite after step 7$"):
        check_finite_parameters({"w": nn.Parameter(value)}, 7)


def test_what_is_not_trained_may_be_anything():
    infinite = torch.full((2,), float("inf"))
    values = {
        "buffer": infinite,
        "frozen": nn.Parameter(infinite, requires_grad=False),
        "empty": nn.Parameter(torch.ones(0)),
        "complex": nn.Parameter(torch.ones(2, dtype=torch.complex64).conj()),
    }
    check_finite_parameters(values, 7)
