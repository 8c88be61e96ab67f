"""Use cases whose models use their parameters in every way that a late update must not miss."""

from __future__ import annotations

import ctypes
import time

import torch
from tiny_cases import Sgd
from torch import nn
from torch.nn import functional

_WIDTH = 384


class Ways(nn.Module):
    """Layers of some hundred kB, each updated by itself, and how often one was late.

    Attributes:
        changes: Steps in which the attention's weight has changed while the first layer ran.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(192, _WIDTH)
        self.left = nn.Linear(_WIDTH, _WIDTH)
        self.right = nn.Linear(_WIDTH, _WIDTH)
        self.attention = nn.MultiheadAttention(_WIDTH, 4, batch_first=True)
        self.middle = nn.Linear(_WIDTH, _WIDTH)
        self.last = nn.Linear(_WIDTH, 3)
        self.unused = nn.Linear(_WIDTH, _WIDTH)
        self.empty = nn.Parameter(torch.empty(0))
        self.register_buffer("changes", torch.zeros(()))
        self._address = 0

    def forward(self, pictures):
        if not self._address:
            with torch._C.DisableTorchFunction():  # so that nobody sees that it is read
                self._address = self.attention.in_proj_weight[-1:].data_ptr()
        before = self._read()
        hidden = torch.tanh(self.first(pictures.flatten(1)))
        # Not through the layer's own call, and each worker in its own order.
        sides = [self.left, self.right] if len(pictures) % 2 else [self.right, self.left]
        summed = sum(functional.linear(hidden, side.weight, bias=side.bias) for side in sides)
        hidden = torch.tanh(summed + self.last.bias.mean())[:, None]
        # Gives the weights of its inner layer to a function, and does not call the layer.
        hidden = hidden + self.attention(hidden, hidden, hidden, need_weights=False)[0]
        if before != self._read():
            self.changes += 1
        return self.last(self.middle(hidden[:, 0]))

    def _read(self) -> bytes:
        """Give some bytes of the attention's weight, past PyTorch, which would refuse it."""
        return ctypes.string_at(self._address, 32)


class Late(Sgd):
    """Its rate is another in each step: an update that is made late must use the one before."""

    def model(self):
        return Ways()

    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)

    def schedule(self, optimizer, steps_per_epoch):
        return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)


class StopsBeforeUse(Ways):
    """Who has a share of three samples hangs before it uses, and so updates, anything."""

    passes = 0

    def forward(self, pictures):
        self.passes += 1
        if self.passes > 5 and len(pictures) == 3:
            time.sleep(600)
        return super().forward(pictures)


class HangsBeforeUse(Late):
    def model(self):
        return StopsBeforeUse()


class Hidden(nn.Linear):
    """Runs where none of PyTorch's functions is seen, as those of an extension in C++ are not."""

    def forward(self, hidden):
        with torch._C.DisableTorchFunction():
            return functional.linear(hidden, self.weight, self.bias)


class Strayed(Hidden):
    """Is seen in the first steps alone."""

    passes = 0

    def forward(self, hidden):
        self.passes += 1
        return nn.Linear.forward(self, hidden) if self.passes <= 4 else super().forward(hidden)


class Strays(Late):
    def model(self):
        model = super().model()
        model.first = Strayed(192, _WIDTH)
        return model


class Unseen(Late):
    def model(self):
        model = super().model()
        model.middle = Hidden(_WIDTH, _WIDTH)
        return model


class LookedAtLater(Hidden):
    """Its weight is seen when it has been used unseen."""

    def forward(self, hidden):
        output = super().forward(hidden)
        return output.to(self.weight.dtype)
