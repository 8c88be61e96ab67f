"""Use cases whose bf16 goes wrong in different ways."""

from __future__ import annotations

import os
import signal
import time

import torch
from torch import nn
from torch.nn import functional

from launch.use_cases._base import UseCase

_KEPT = []


class Samples(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, 16, 16, generator=generator), index % 4


class Sound(UseCase):
    """Convolutions of one shape twice, a bias in front of BatchNorm, dropout, linear layers."""

    name = "sound"
    default_batch = 8

    def model(self):
        return nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Dropout(),
            nn.Linear(512, 64),
            nn.ReLU(),
            nn.Linear(64, 4),
        )

    def dataset(self, data, *, train: bool):
        return Samples()

    def loss(self, output, target):
        return functional.cross_entropy(output.float(), target)

    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=0.1)


class SlowAtFirst(Sound):
    """Takes long for its first batch, as a GPU does that loads its libraries."""

    def model(self):
        waits_s = iter([1.0])

        def wait(*_):
            time.sleep(next(waits_s, 0.0))

        model = super().model()
        model.register_forward_pre_hook(wait)
        return model


class WrongKernel(Sound):
    """Has a matrix product that leaves out some of its terms in bf16, as a wrong kernel does."""

    def model(self):
        library = torch.library.Library("aten", "IMPL")
        _KEPT.append(library)

        def addmm(bias, one, other, *, beta=1, alpha=1):
            if one.dtype == torch.bfloat16:
                one, other = one[:, 8:], other[8:]
            product = torch.mm(one, other)
            return beta * bias + alpha * product

        library.impl("addmm", addmm, "CPU")
        return super().model()


class Changed(nn.Module):
    """Does something else where the precision is not fp32."""

    def __init__(self, change) -> None:
        super().__init__()
        self._change = change

    def forward(self, inputs):
        return self._change(inputs) if torch.is_autocast_enabled("cpu") else inputs


class Turned(torch.autograd.Function):
    @staticmethod
    def forward(context, inputs):
        return inputs.clone()

    @staticmethod
    def backward(context, gradient):
        return -gradient


class WrongSign(Sound):
    """Every operator is sound, and the gradient points the other way."""

    def model(self):
        return nn.Sequential(super().model(), Changed(Turned.apply))


class NotANumber(Sound):
    def model(self):
        return nn.Sequential(super().model(), Changed(lambda inputs: inputs * float("nan")))


class Raises(Sound):
    def model(self):
        def refuse(inputs):
            raise RuntimeError("no kernel for\nbf16")

        return nn.Sequential(super().model(), Changed(refuse))


class Dies(Sound):
    """Dies of bf16, as a process does of an instruction that its processor does not have."""

    def model(self):
        def die(inputs):
            os.kill(os.getpid(), signal.SIGILL)

        return nn.Sequential(super().model(), Changed(die))


class NoProducts(Sound):
    """Has nothing that bf16 could make faster."""

    def model(self):
        class Scale(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight = nn.Parameter(torch.ones(4))

            def forward(self, inputs):
                return inputs.flatten(1)[:, :4] * self.weight

        return Scale()
