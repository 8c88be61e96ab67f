"""Layers that use a parameter by something that they keep: what is in its memory, or was."""

from __future__ import annotations

import ctypes

import torch
from torch import nn

from tiny.hidden_layers import FIRST_STEPS, WIDTH, Layer, factor_of


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


class NumpyFromInit(NumpyKept):
    """Reads its weight in an array that it has from the time when it was made."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = self.weight.detach().numpy()


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


class InOneTensor(nn.Module):
    """Its weights are parts of a tensor that it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.all = torch.randn(2, WIDTH, WIDTH) / 20
        self.there, self.back = map(nn.Parameter, self.all)

    def forward(self, hidden):
        return torch.tanh(hidden @ self.there) @ self.back * (1 + self.all.mean())
