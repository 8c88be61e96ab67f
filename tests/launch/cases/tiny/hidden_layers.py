"""Layers that use a parameter in a way that is easily missed.

The hidden use comes before every other use of the same parameter in a step, and changes the output
much.
"""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WIDTH = 384
"""Large enough for a layer to be updated by itself."""

FIRST_STEPS = 6
"""Calls after which some layers change what they do."""


class Around(nn.Module):
    """A network around a layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.first = nn.Linear(192, WIDTH, bias=False)
        self.layer = layer
        self.last = nn.Linear(WIDTH, 3)

    def forward(self, pictures):
        return self.last(self.layer(torch.tanh(self.first(pictures.flatten(1)))))


class Layer(nn.Linear):
    """A square layer whose output is multiplied by what `factor` makes of a weight.

    Attributes:
        calls: How often it was called before.
        kept: Something from an earlier call.
    """

    def __init__(self) -> None:
        super().__init__(WIDTH, WIDTH)
        self.calls = 0
        self.kept: Any = None

    def forward(self, hidden):
        output = self.factor(hidden.detach()) * super().forward(hidden)
        self.calls += 1
        return output

    def factor(self, hidden):
        raise NotImplementedError


def factor_of(product):
    """Make of a product with a weight one factor for each sample, which differs much."""
    return 1 + torch.tanh(4 * product).sum(1, keepdim=True) / 20


class Limited(Layer):
    """Limits the norm of its weight in place before it uses it."""

    def factor(self, hidden):
        with torch.no_grad():
            self.weight.copy_(torch.renorm(self.weight, 2, 0, 0.5))
        return 1


class Replaced(Layer):
    """Puts other memory in the place of its weight's."""

    def factor(self, hidden):
        self.weight.data = torch.renorm(self.weight.data, 2, 0, 0.5)
        return 1


class EverySecondTime(Layer):
    """Is used in every second call alone."""

    def forward(self, hidden):
        self.calls += 1
        return nn.Linear.forward(self, hidden) if self.calls % 2 else hidden


class Recomputed(Layer):
    """Runs first without a graph, and again in the backward pass."""

    def forward(self, hidden):
        return checkpoint(lambda given: nn.Linear.forward(self, given), hidden, use_reentrant=True)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight):
        ctx.save_for_backward(hidden, weight)
        return hidden @ weight

    @staticmethod
    def backward(ctx, gradient):
        hidden, weight = ctx.saved_tensors
        return gradient @ weight.t(), hidden.t() @ gradient


class OwnFunction(Layer):
    def forward(self, hidden):
        return _Product.apply(hidden, self.weight) + self.bias


class _ByWeightOf(torch.autograd.Function):
    """The gradient goes by a weight that the forward pass has not used."""

    @staticmethod
    def forward(ctx, hidden, layer):
        ctx.layer = layer
        return hidden.clone()

    @staticmethod
    def backward(ctx, gradient):
        with torch._C.DisableTorchFunction():
            return gradient @ ctx.layer.weight, None


class UsedInBackward(Layer):
    """Its weight is used unseen by the backward pass, before its own gradient comes."""

    def forward(self, hidden):
        return _ByWeightOf.apply(hidden + 0 * self.weight.sum(), self) + self.bias


class HiddenAfterAWhile(Layer):
    """Uses its weight unseen and without a graph when the first steps are over."""

    def factor(self, hidden):
        if self.calls < FIRST_STEPS:
            return 1
        with torch.no_grad(), torch._C.DisableTorchFunction():
            return factor_of(hidden @ self.weight)


class AnnouncedAfterAWhile(HiddenAfterAWhile):
    """The same, with a function of PyTorch before."""

    def factor(self, hidden):
        self.weight.numel()
        return super().factor(hidden)


class InAThread(Layer):
    """Looks at its weight in a thread of its own, without a graph."""

    def factor(self, hidden):
        with ThreadPoolExecutor(1) as threads:
            return threads.submit(self._look, hidden).result()

    @torch.no_grad()
    def _look(self, hidden):
        return factor_of(hidden @ self.weight)


class Compiled(Layer):
    """Looks at its weight in compiled code, without a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = torch.compile(lambda: 1 + self.weight.square().mean())

    def factor(self, hidden):
        with torch.no_grad():
            return self.kept()


def scripted() -> nn.Module:
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        return torch.jit.script(nn.Linear(WIDTH, WIDTH))


class ScriptedWithoutGraph(nn.Module):
    """Its parameters are used by a scripted layer without a graph, and then openly."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = scripted()

    def forward(self, hidden):
        with torch.no_grad():
            factor = factor_of(self.inner(hidden))
        return functional.linear(hidden, self.inner.weight, self.inner.bias) * factor


class Functional(nn.Module):
    """Is called with its parameters, and with others made of them, in tables."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))

    def forward(self, hidden):
        parameters = dict(self.inner.named_parameters())
        halved = {name: value * 0.5 for name, value in parameters.items()}
        plain = torch.func.functional_call(self.inner, parameters, (hidden,))
        return plain + torch.func.functional_call(self.inner, halved, (hidden,))


def spectral_norm() -> nn.Module:
    return nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH))


def old_spectral_norm() -> nn.Module:
    """Puts an attribute in the place of the weight, at first one that shares its memory."""
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        return nn.utils.spectral_norm(nn.Linear(WIDTH, WIDTH))
