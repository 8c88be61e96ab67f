"""Deferred weight gradients of large matrices: once a step, not once a micro-batch.

The weight gradient of a linear layer is a product over all samples. Made for each micro-batch, it
is written, read again and added to as many times as there are micro-batches, and a matrix that is
larger than the cache makes the memory the limit: AlexNet's linear layers hold 217 MB. Made from the
inputs and output gradients of all micro-batches together it is written once. A later stage of a
pipeline does so while the earlier ones still run backward, when it would be idle. The price is
memory: the inputs and output gradients of these layers are stored for all micro-batches of a step,
also where the schedule is 1F1B.

Source of the second point: Qi et al., "Zero Bubble Pipeline Parallelism", 2024,
https://arxiv.org/abs/2401.10241.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class DeferredWeightGradients:
    """Runs layers one after the other, and computes the weight gradients of linear ones later.

    Args:
        layers: Where one is exactly a `torch.nn.Linear` without hooks, the gradient of its weight
            is computed by `finish`; everything else as always.
    """

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        self._layers = list(layers)
        self._waiting: dict[nn.Linear, list[tuple[Tensor, Tensor]]] = {}

    def __call__(self, value: Any) -> Any:
        """Run the layers forward."""
        for layer in self._layers:
            is_inner = isinstance(value, Tensor) and value.requires_grad and torch.is_grad_enabled()
            # Asked each time: a weight may be frozen later.
            value = self._run(layer, value) if is_inner and _may_wait(layer) else layer(value)
        return value

    @torch.no_grad()
    def finish(self) -> None:
        """Compute the gradients deferred since the last call, and add them."""
        for layer, pairs in self._waiting.items():
            inputs, gradients = zip(*pairs, strict=True)
            gradient = torch.cat([_rows(part) for part in gradients])
            # Conjugated where they are complex, as autograd does; else this changes nothing.
            rows = torch.cat([_rows(part) for part in inputs]).conj()
            product = gradient.T @ rows.to(gradient.dtype)
            # By autograd, so that hooks of the gradient run.
            torch.autograd.backward([layer.weight], [product.to(layer.weight.dtype)])
        self._waiting.clear()

    def repeat(self, count: int) -> None:
        """Repeat each layer's last micro-batch as often as a step has some, to time `finish`."""
        for layer, pairs in self._waiting.items():
            self._waiting[layer] = pairs[-1:] * count

    def _run(self, layer: nn.Module, inputs: Tensor) -> Tensor:
        assert isinstance(layer, nn.Linear)
        # In two dimensions: of more the output may be a view, and a layer that then changes it in
        # place would remove its hook (torch 2.14).
        rows = _rows(inputs)
        output = functional.linear(rows, layer.weight.detach(), layer.bias)
        detached = rows.detach()

        def wait(gradient: Tensor) -> None:
            self._waiting.setdefault(layer, []).append((detached, gradient))

        output.register_hook(wait)  # type: ignore[no-untyped-call]
        return output if inputs.dim() == 2 else output.view(*inputs.shape[:-1], -1)


def _may_wait(layer: nn.Module) -> bool:
    """Whether a later weight gradient makes no difference to the layer's hooks."""
    return (
        type(layer) is nn.Linear
        and layer.weight.requires_grad
        and not layer._forward_hooks
        and not layer._forward_pre_hooks
        and not layer._backward_hooks
        and not layer._backward_pre_hooks
    )


def _rows(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1, tensor.size(-1))
