"""Linear layers by oneDNN: on AMD processors its products in fp32 may be faster than MKL's.

torch multiplies matrices in fp32 by MKL, and has no switch for that. The operator that its own
compiler uses for linear layers takes plain tensors and gives the same numbers up to the order of
sums, but has no gradient: here it gets one. Measured on one core of a Zen 4: forward 1.2 to 1.7
times as fast as by MKL, the gradient of the input 1.0 to 1.4 times; that of the weight gains
nothing and stays with MKL. Other ways lose: as a convolution of one pixel, and as a layer of
`torch.utils.mkldnn`, each step puts the weights into another order first.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function

from launch.plan import Plan


def set_linear(plan: Plan) -> None:
    """Let the linear layers of this process multiply as the plan says.

    For the whole process: a layer that is copied with its model is copied right.
    """
    if plan.onednn_linear:
        nn.Linear.forward = _forward  # type: ignore[method-assign]


def linear(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute what `torch.nn.functional.linear` does; in lower precision by that one."""
    if has_torch_function((inputs, weight)):  # a mode that looks for uses of parameters
        return handle_torch_function(linear, (inputs, weight), inputs, weight, bias)
    is_plain = inputs.dtype == weight.dtype == torch.float32 and inputs.device.type == "cpu"
    if not is_plain or torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling():
        return nn.functional.linear(inputs, weight, bias)
    return _Linear.apply(inputs, weight, bias)  # type: ignore[no-any-return]


def _forward(self: nn.Linear, input: Tensor) -> Tensor:  # noqa: A002 - the name that callers may use
    return linear(input, self.weight, self.bias)


def _multiply(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply by the transpose of ``right``."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], "")
    return product


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        return _multiply(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        inputs, weight = ctx.saved_tensors
        needs_inputs, needs_weight, needs_bias = ctx.needs_input_grad
        rows = gradient.reshape(-1, gradient.size(-1))
        of_inputs: Tensor | None = None
        if needs_inputs and torch.is_grad_enabled():  # for a gradient of this one, as in a penalty
            of_inputs = gradient @ weight
        elif needs_inputs:
            of_inputs = _multiply(gradient, weight.t())
        return (
            of_inputs,
            rows.t() @ inputs.reshape(-1, inputs.size(-1)) if needs_weight else None,
            rows.sum(0) if needs_bias else None,
        )
