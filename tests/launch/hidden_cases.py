"""Use cases whose models use a parameter in a way that is easily missed.

Each has a small network around one layer. Its hidden use comes before every other use of the same
parameter in a step, and changes the output much.
"""

from __future__ import annotations

import ctypes
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from tiny_cases import Sgd
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


class ViewFromInit(Layer):
    """Has a view of a part of its weight from the time when it was made."""

    def __init__(self) -> None:
        super().__init__()
        self.part = self.weight[: WIDTH // 2]

    def factor(self, hidden):
        return factor_of(hidden @ self.part.detach().t())


class DetachFromInit(Layer):
    """Has a tensor in the memory of its weight from the time when it was made."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = self.weight.detach().t()[1:]

    def factor(self, hidden):
        return factor_of(hidden[:, 1:] @ self.kept)


class PicturesFromInit(nn.Conv2d):
    """Sees its input as pictures; has a tensor in the memory of its weight."""

    def __init__(self) -> None:
        super().__init__(6, 6, 3, padding=1)
        self.kept = self.weight.detach()

    def forward(self, hidden):
        pictures = super().forward(hidden.view(-1, 6, 8, 8))
        return pictures.flatten(1) * (1 + torch.tanh(self.kept.square().sum()))


class PartOfPicturesFromInit(PicturesFromInit):
    """Has one in a part of that memory."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = self.weight.detach()[1:]


class DetachKept(Layer):
    """Keeps such a tensor from its first call."""

    def factor(self, hidden):
        if self.kept is None:
            self.kept = self.weight.detach()
        return factor_of(hidden @ self.kept)


class KeptAfterAWhile(DetachKept):
    """Begins to keep it when the first steps are over."""

    def factor(self, hidden):
        if self.calls < FIRST_STEPS:
            return factor_of(hidden @ self.weight.detach())
        return super().factor(hidden)


class KeptByOne(KeptAfterAWhile):
    """The same, of the workers alone that have a share of three samples."""

    def factor(self, hidden):
        if len(hidden) == 3:
            return super().factor(hidden)
        return factor_of(hidden @ self.weight.detach())


class KeptEverySecondTime(DetachKept):
    """Uses what it keeps in every second call alone."""

    def factor(self, hidden):
        if self.calls % 2:
            return factor_of(hidden @ self.weight.detach())
        return super().factor(hidden)


class KeptForArgmax(DetachKept):
    """Makes whole numbers of what it keeps: they hide whatever was no number."""

    def factor(self, hidden):
        super().factor(hidden)
        order = torch.nan_to_num(self.kept).sum(1).argmax()
        return 1 + 0.1 * (order % 4)


class NumpyKept(Layer):
    """Reads its weight in an array that it keeps."""

    def factor(self, hidden):
        if self.kept is None:
            self.kept = self.weight.detach().numpy()
        return 1 + 100 * float(self.kept.mean())


class AddressKept(Layer):
    """Reads its weight at an address that it keeps."""

    def factor(self, hidden):
        if self.kept is None:
            self.kept = self.weight.data_ptr()
        return 1 + ctypes.c_float.from_address(self.kept).value


class StorageKept(Layer):
    """Keeps the memory of its weight."""

    def factor(self, hidden):
        if self.kept is None:
            self.kept = self.weight.untyped_storage()
        return 1 + torch.empty(0).set_(self.kept, 0, (WIDTH,), (1,)).mean()


class StateKept(Layer):
    """Keeps its first state_dict."""

    def factor(self, hidden):
        if self.kept is None:
            self.kept = self.state_dict()
        return factor_of(hidden @ self.kept["weight"])


class GraphKept(Layer):
    """Keeps an output with its graph."""

    def factor(self, hidden):
        self.kept = hidden @ self.weight.t() @ self.weight.t()
        return factor_of(self.kept.detach())


class CloneKept(Layer):
    """Keeps a copy of its weight, which is as old with one process."""

    def factor(self, hidden):
        if self.kept is None:
            self.kept = self.weight.detach().clone()
        return factor_of(hidden @ self.kept)


class SharedWithFrozen(Layer):
    """A frozen layer has its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.teacher.weight.data = self.weight.data

    def factor(self, hidden):
        return factor_of(self.teacher(hidden))


class Averaged(Layer):
    """Keeps a running mean of its weight in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", self.weight.detach().clone())

    def factor(self, hidden):
        if self.training:
            with torch.no_grad():
                self.mean.lerp_(self.weight, 0.1)
        return factor_of(hidden @ self.mean)


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
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


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.there = nn.Linear(WIDTH, WIDTH)
        self.back = nn.Linear(WIDTH, WIDTH)
        self.back.weight = self.there.weight

    def forward(self, hidden):
        return self.back(torch.tanh(self.there(hidden)))


class TwoOfOneMemory(Tied):
    """Two weights in one memory."""

    def __init__(self) -> None:
        super().__init__()
        self.back.weight = nn.Parameter(self.there.weight.data)


class NumpyFromInit(Layer):
    """Reads its weight in an array that it has from the time when it was made."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = self.weight.detach().numpy()

    def factor(self, hidden):
        return 1 + 100 * float(self.kept.mean())


class InOneTensor(nn.Module):
    """Its weights are parts of a tensor that it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.all = torch.randn(2, WIDTH, WIDTH) / 20
        self.there, self.back = map(nn.Parameter, self.all)

    def forward(self, hidden):
        return torch.tanh(hidden @ self.there) @ self.back * (1 + self.all.mean())


def spectral_norm() -> nn.Module:
    return nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH))


def old_spectral_norm() -> nn.Module:
    """Puts an attribute in the place of the weight, at first one that shares its memory."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.utils.spectral_norm(nn.Linear(WIDTH, WIDTH))


class Hidden(Sgd):
    layer: Any

    def model(self):
        return Around(self.layer())

    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


class ViewFromInitCase(Hidden):
    layer = ViewFromInit


class DetachFromInitCase(Hidden):
    layer = DetachFromInit


class PicturesFromInitCase(Hidden):
    layer = PicturesFromInit


class InStages(Hidden):
    def layers(self, model):
        return nn.Sequential(nn.Flatten(), model.first, nn.Tanh(), model.layer, model.last)


class CloneKeptInStages(InStages):
    layer = CloneKept


class DetachFromInitInStages(InStages):
    layer = DetachFromInit


class DetachKeptInStages(InStages):
    layer = DetachKept


class KeptByOneCase(Hidden):
    layer = KeptByOne


class TiedCase(Hidden):
    layer = Tied


class WithTemperature(Around):
    """Gives a parameter to the loss as it is."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(WIDTH, WIDTH))
        self.temperature = nn.Parameter(torch.zeros(WIDTH, WIDTH))

    def forward(self, pictures):
        return super().forward(pictures), self.temperature


class UsedByLossCase(Hidden):
    def model(self):
        return WithTemperature()

    def loss(self, output, target):
        scores, temperature = output
        return super().loss(scores * temperature.mean().exp() * temperature[0, :3].exp(), target)

    def metrics(self, output, target):
        return {}
