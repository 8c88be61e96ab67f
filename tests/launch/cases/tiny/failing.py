"""Ways to fail: by exceptions, ends, hangs, numbers that are none, and in another process."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn

from launch.errors import UseCaseError
from tiny.base import Pictures, Sgd
from tiny.inputs import NestedTargets


class NoData(Sgd):
    """Waits for a server that never answers."""

    def dataset(self, data, *, train: bool):
        return time.sleep(600)


class FaultyOnSecond(Sgd):
    """On the second rank of `rank_apart` at fault once the first one is there, which waits."""

    def dataset(self, data, *, train: bool):
        if Path.cwd().name == "rank0":
            time.sleep(600)
        while not list(Path("../rank0").glob("runs/1/*.log")):
            time.sleep(0.05)
        raise UseCaseError("the data are of another kind")


class OtherData(Sgd):
    """Each rank of `rank_apart` finds other data."""

    def dataset(self, data, *, train: bool):
        return Pictures(160 - 8 * _rank() if train else 10)


class OtherWidth(Sgd):
    """Each rank builds another model, of as many layers."""

    def model(self):
        layers = super().model()
        layers[-1] = nn.Linear(16, 3 + _rank())
        return layers


def _rank() -> int:
    return int(Path.cwd().name.removeprefix("rank"))


class Raises(Sgd):
    def loss(self, output, target):
        raise ArithmeticError("the loss is beyond me")


class Leaves(Sgd):
    def loss(self, output, target):
        os._exit(3)


class Exits(Sgd):
    def loss(self, output, target):
        sys.exit("there is no loss")


class LeavesQuietly(Sgd):
    """Ends the process that has the first of the cores as if all were well."""

    def loss(self, output, target):
        if min(os.sched_getaffinity(os.getppid())) in os.sched_getaffinity(0):
            os._exit(0)
        return super().loss(output, target)


class Dies(Sgd):
    """Killed in the third step, as the kernel does when memory is short."""

    steps = 0

    def loss(self, output, target):
        self.steps += 1
        if self.steps == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().loss(output, target)


class Hangs(Sgd):
    def loss(self, output, target):
        time.sleep(3600)


class NotANumber(Sgd):
    def loss(self, output, target):
        return super().loss(output, target) * float("nan")


class Diverges(Sgd):
    """Is not a number from the 13th step on."""

    steps = 0

    def loss(self, output, target):
        self.steps += torch.is_grad_enabled()
        return super().loss(output, target) * (float("nan") if self.steps > 12 else 1)


class Thaws(Sgd):
    """Has a frozen bias, which the third step trains."""

    steps = 0

    def model(self):
        model = super().model()
        model[0].bias.requires_grad_(False)
        return model

    def step(self, model, batch):
        self.steps += 1
        model[0].bias.requires_grad_(self.steps > 2)
        return super().step(model, batch)


class _LastUpdateFails(torch.optim.SGD):
    """Makes infinite parameters in the last of twenty steps, whose loss is a number."""

    steps = 0

    def step(self, closure=None):
        super().step(closure)
        self.steps += 1
        if self.steps == 20:
            self.param_groups[0]["params"][0].data.fill_(float("inf"))


class DivergesAtLast(Sgd):
    """The same after the last step, with nothing to validate."""

    def dataset(self, data, *, train: bool):
        return Pictures(160 if train else 0)

    def optimizer(self, parameters):
        return _LastUpdateFails(parameters, lr=0.05)


class DivergesInValidation(Sgd):
    """Cannot be validated on a single sample, which one of two workers has left."""

    def loss(self, output, target):
        loss = super().loss(output, target)
        return loss if torch.is_grad_enabled() or len(output) > 1 else loss * float("inf")

    def dataset(self, data, *, train: bool):
        return Pictures(160 if train else 9)


class LosesLoaders(Sgd):
    """Its loading processes die of what the kernel sends where it has no page for a batch."""

    number = signal.SIGBUS

    def dataset(self, data, *, train: bool):
        return DeadlyPictures(160 if train else 10, self.number)


class LosesKilledLoaders(LosesLoaders):
    number = signal.SIGKILL


class DeadlyPictures(Pictures):
    def __init__(self, size: int, number: signal.Signals) -> None:
        super().__init__(size)
        self._number = number

    def __getitem__(self, index: int):
        if torch.utils.data.get_worker_info() is not None:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.kill(os.getpid(), self._number)
        return super().__getitem__(index)


class FindsNoRoom(Sgd):
    """Has no room for a batch in its loading processes, as newer releases of torch say it."""

    def collate(self, samples):
        if torch.utils.data.get_worker_info() is not None:
            raise RuntimeError(
                "unable to allocate shared memory(shm) for file </torch_7_8_9>: No space left on "
                "device (28)"
            )
        return super().collate(samples)


class FindsNoRoomForNccl(Sgd):
    def loss(self, output, target):
        raise RuntimeError("creating segment /dev/shm/nccl-Ab3: No space left on device (28)")


class TooLarge(Sgd):
    def loss(self, output, target):
        return super().loss(output, target) + torch.empty(1 << 60, dtype=torch.uint8).sum()


class KeepsChild(Sgd):
    """Trains on, beside a process that it has started."""

    child = 0

    def loss(self, output, target):
        if not self.child:
            self.child = os.fork()
            if not self.child:
                time.sleep(3600)
        return super().loss(output, target)


class LeavesChild(Sgd):
    """Starts a process that would outlive it."""

    def loss(self, output, target):
        if os.fork() == 0:
            time.sleep(3600)
        raise ArithmeticError("and there is a child")


FATEFUL = 86
"""A sample that comes in the middle of the first epoch, at seed 7 and batches of 8."""


class FailsOnce(NestedTargets):
    """The worker fails that judges one certain sample, while others wait for it."""

    def loss(self, output, target):
        if (target["number"] == FATEFUL).any():
            self.fail()
        return super().loss(output, target)


class RaisesOnce(FailsOnce):
    def fail(self):
        raise ArithmeticError("the loss is beyond me")


class ExitsOnce(FailsOnce):
    def fail(self):
        os._exit(3)


class DiesOnce(FailsOnce):
    def fail(self):
        os.kill(os.getpid(), signal.SIGKILL)


class Beyond(nn.Module):
    """Raises after some forward passes."""

    calls = 0

    def forward(self, hidden):
        self.calls += 1
        if self.calls > 40:
            raise ArithmeticError("the layer is beyond me")
        return hidden


class RaisesInLayer(Sgd):
    def model(self):
        return nn.Sequential(
            nn.Flatten(), Beyond(), nn.Linear(192, 16), nn.Tanh(), nn.Linear(16, 3)
        )


@torch.library.custom_op("ddlplan_tests::unknown", mutates_args=())
def unknown(x: torch.Tensor) -> torch.Tensor:
    """An operator whose result nobody can tell the shape of."""
    return x.clone()


@unknown.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("this operator has no kernel")


class CannotBeCompiled(Sgd):
    def model(self):
        class Unknown(nn.Module):
            def forward(self, pictures):
                return unknown(pictures)

        return nn.Sequential(Unknown(), super().model())


class DiesWhileBuilding(Sgd):
    """Kills the worker that has the first of the cores, before the first step."""

    def model(self):
        cores = os.sched_getaffinity(os.getppid())
        if min(cores) in os.sched_getaffinity(0):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().model()
