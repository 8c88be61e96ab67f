"""Use cases whose steps take a steady time on any machine, and one that fails in every way."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

STEP_S = 0.02


class Numbers(torch.utils.data.Dataset):
    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int):
        return torch.tensor([index / 100, 1.0]), index % 2


class Steady:
    """Sleeps in each step, so that its times are known before they are measured."""

    name = "steady"
    default_batch = 4

    def model(self):
        return nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))

    def dataset(self, data, *, train: bool):
        return Numbers(32 if train else 4)

    def loss(self, output, target):
        if torch.is_grad_enabled():
            time.sleep(STEP_S)
        return functional.cross_entropy(output, target)

    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=0.1)

    def metrics(self, output, target):
        return {"accuracy": (output.argmax(1) == target).float().mean().item()}


class OwnStep(Steady):
    """Has batches that are no pairs, and a step that knows them, which calls a method too."""

    name = "own step"

    def model(self):
        return nn.ModuleDict({"layers": super().model()})

    def collate(self, samples):
        inputs, target = torch.utils.data.default_collate(samples)
        return {"inputs": inputs, "target": target}

    def step(self, model, batch):
        return self.loss(model["layers"](batch["inputs"]), batch["target"])


class Fails(Steady):
    def loss(self, output, target):
        raise ArithmeticError("the loss is\nbeyond \x1b[31mme")


class Diverges(Steady):
    """Is no number any more once it has been kept."""

    def loss(self, output, target):
        is_kept = torch.is_grad_enabled() and any(Path("kept").glob("step-*"))
        return super().loss(output, target) * (float("nan") if is_kept else 1)


class NotANumber(Steady):
    def loss(self, output, target):
        return super().loss(output, target) * float("nan")


class Dies(Steady):
    """Writes its last line and is killed, as the kernel does when memory is short."""

    steps = 0
    last_step = 3

    def loss(self, output, target):
        self.steps += 1
        if self.steps == self.last_step:
            sys.stderr.write("my last word\n")
            os.kill(os.getpid(), signal.SIGKILL)
        return super().loss(output, target)


class DiesLater(Dies):
    """The same, after steps that are seen."""

    last_step = 30


class DiesInPeers(Steady):
    """Trains with ddlplan alone."""

    def loss(self, output, target):
        if "DDLPLAN_PEER" in os.environ:
            raise ArithmeticError("no peer can count")
        return super().loss(output, target)


class DiesInOurs(Steady):
    """Trains with peers alone after so many steps."""

    steps = 0

    def loss(self, output, target):
        self.steps += torch.is_grad_enabled()
        if self.steps > 150 and "DDLPLAN_PEER" not in os.environ:
            raise ArithmeticError("ours cannot count so far")
        return super().loss(output, target)


class FailsOnNode3(Steady):
    def loss(self, output, target):
        if socket.gethostname() == "node3":
            raise ArithmeticError("this host cannot count")
        return super().loss(output, target)
