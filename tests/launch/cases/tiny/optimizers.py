"""Optimizers and schedules: elementwise and not, with groups, clipped, with changing rates."""

from __future__ import annotations

import threading

import torch

from tiny.base import Sgd


class AdamW(Sgd):
    def optimizer(self, parameters):
        return torch.optim.AdamW(parameters, lr=0.002)


class Adagrad(Sgd):
    """An optimizer that makes its state before the first step."""

    def optimizer(self, parameters):
        return torch.optim.Adagrad(parameters, lr=0.01)


class Groups(Sgd):
    """Two parameter groups with settings of their own."""

    def optimizer(self, parameters):
        every = list(parameters)
        biases = [p for p in every if p.ndim == 1]
        weights = [p for p in every if p.ndim > 1]
        groups = [
            {"params": biases, "weight_decay": 0.0, "lr": 0.01},
            {"params": weights, "weight_decay": 0.1},
        ]
        return torch.optim.SGD(groups, lr=0.05, momentum=0.9)


class MadeInTurn(Sgd):
    """Makes one optimizer at a time, as what changes something of its own meanwhile has to."""

    def optimizer(self, parameters):
        assert threading.current_thread() is threading.main_thread()
        return super().optimizer(parameters)


class Clipped(Sgd):
    """Every step's gradient is longer than this."""

    max_gradient_norm = 0.05


class ClippedGroups(Groups):
    """The norm is that of all groups together, and here not every step's gradient exceeds it."""

    max_gradient_norm = 0.2


class ClippedBiases(Clipped):
    """The norm is that of all gradients, whatever the optimizer trains."""

    def optimizer(self, parameters):
        return torch.optim.SGD([p for p in parameters if p.ndim == 1], lr=0.05, momentum=0.9)


class ConvolutionsAlone(Sgd):
    """Its linear layers stay as they are."""

    def optimizer(self, parameters):
        return torch.optim.SGD([p for p in parameters if p.ndim == 4], lr=0.05)


class NormalisedSgd(torch.optim.Optimizer):
    """Not elementwise: each tensor's step depends on the norm of its whole gradient."""

    def __init__(self, parameters, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    norm = parameter.grad.norm() + 1e-6
                    parameter.sub_(parameter.grad / norm, alpha=group["lr"])


class WholeTensors(Sgd):
    def optimizer(self, parameters):
        return NormalisedSgd(parameters, lr=0.05)


class SteepSgd(torch.optim.SGD):
    """A subclass, of which nobody knows whether it is elementwise; not linear in the gradient."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad * parameter.grad.norm(), alpha=group["lr"])


class ClippedWholeTensors(Sgd):
    max_gradient_norm = 0.05

    def optimizer(self, parameters):
        return SteepSgd(parameters, lr=5.0)


class GlobalNormSgd(torch.optim.Optimizer):
    """A step's length depends on the gradients of all parameters."""

    def __init__(self, parameters, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        every = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        norm = torch.stack([parameter.grad.norm() for parameter in every]).norm()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad / norm, alpha=group["lr"])


class GlobalNorm(Sgd):
    def optimizer(self, parameters):
        return GlobalNormSgd(parameters, lr=0.05)


class Scheduled(AdamW):
    """Its rate changes with every step."""

    max_gradient_norm = 0.25

    def schedule(self, optimizer, steps_per_epoch):
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps_per_epoch)


class OneCycle(Groups):
    """A schedule that changes the momentum too, of each group from its own rate."""

    def schedule(self, optimizer, steps_per_epoch):
        return torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=[0.05, 0.1], total_steps=2 * steps_per_epoch + 1
        )


class LongSchedule(AdamW):
    """A schedule that must know how many epochs there are."""

    def schedule(self, optimizer, steps_per_epoch, epochs):
        return torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=0.01, total_steps=steps_per_epoch * epochs + 1
        )
