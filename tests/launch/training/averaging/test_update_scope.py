"""What an optimizer must see together is found by running it."""

from __future__ import annotations

import pytest
import torch
from averaging_cases import ELEMENTWISE, Layers, SometimesUnused
from tiny_cases import GlobalNormSgd, NormalisedSgd
from torch import nn

from launch.training.averaging.update_scope import UpdateScope, find_update_scope


def scope_of(make, make_model=lambda: nn.Sequential(nn.Conv2d(3, 5, 2), nn.Linear(20, 33))):
    torch.manual_seed(0)
    return find_update_scope(make, make_model())


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_an_optimizer_of_an_unknown_class_that_treats_each_element_by_itself_may_be_cut(name):
    kind, settings = ELEMENTWISE[name].func, ELEMENTWISE[name].keywords
    own = type("Own", (kind,), {})
    scope = scope_of(lambda parameters: own(parameters, **settings), SometimesUnused)
    assert scope is UpdateScope.ELEMENT


class Counting(torch.optim.Optimizer):
    """Counts its steps in its groups: each step is as many times shorter."""

    def __init__(self, parameters) -> None:
        super().__init__(parameters, {"lr": 0.1, "steps": 0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["steps"] += 1
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad, alpha=group["lr"] / group["steps"])


class NormOfGroups(torch.optim.Optimizer):
    """A step's length depends on the gradients of its group."""

    def __init__(self, parameters) -> None:
        every = [parameter for parameter in parameters if parameter.requires_grad]
        groups = [
            {"params": [p for p in every if p.dim() > 1]},
            {"params": [p for p in every if p.dim() < 2]},
        ]
        super().__init__(groups, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            norm = sum(p.grad.square().sum() for p in group["params"]) ** 0.5
            for parameter in group["params"]:
                parameter.sub_(parameter.grad / norm, alpha=group["lr"])


class Prodigy(torch.optim.Optimizer):
    """Learns its rate from sums over the model, and begins with a tiny one.

    Source: Mishchenko and Defazio, "Prodigy", 2023, https://arxiv.org/abs/2306.06101, with
    gradient descent in place of Adam.
    """

    def __init__(self, parameters) -> None:
        super().__init__(parameters, {"lr": 1.0})
        self.distance, self.along, self.squares = 1e-6, 0.0, 0.0

    @torch.no_grad()
    def step(self, closure=None):
        every = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        for parameter in every:
            start = self.state[parameter].setdefault("start", parameter.clone())
            self.along += float((parameter.grad * (start - parameter)).sum())
            total = self.state[parameter].setdefault("sum", torch.zeros_like(parameter))
            total.add_(parameter.grad, alpha=self.distance)
        norm = sum(float(self.state[p]["sum"].square().sum()) for p in every) ** 0.5
        self.distance = max(self.distance, self.distance * self.along / norm)
        for parameter in every:
            self.squares += float(parameter.grad.square().sum())
        for parameter in every:
            parameter.sub_(parameter.grad, alpha=self.distance / self.squares**0.5)


class Noisy(torch.optim.SGD):
    """Adds noise to each step."""

    @torch.no_grad()
    def step(self, closure=None):
        super().step()
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.add_(torch.randn_like(parameter), alpha=group["lr"])


class LimitedSgd(torch.optim.SGD):
    """Clips the gradient of all parameters, where it is long."""

    def step(self, closure=None):
        every = [p for group in self.param_groups for p in group["params"]]
        nn.utils.clip_grad_norm_(every, 5.0)
        super().step()


def with_hook(parameters):
    every = list(parameters)
    optimizer = torch.optim.SGD(every, lr=0.1)

    def clip(*_):
        nn.utils.clip_grad_norm_(every, 5.0)

    optimizer.register_step_pre_hook(clip)
    return optimizer


def with_quiet_hook(parameters):
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    optimizer.register_step_post_hook(lambda *_: None)
    return optimizer


def broken(parameters):
    raise ArithmeticError("not with such parameters")


@pytest.mark.parametrize(
    ("make", "scope"),
    [
        (lambda parameters: NormalisedSgd(parameters, lr=0.1), UpdateScope.TENSOR),
        (Counting, UpdateScope.TENSOR),
        (torch.optim.SparseAdam, UpdateScope.TENSOR),
        (torch.optim.Adafactor, UpdateScope.TENSOR),
        (lambda parameters: GlobalNormSgd(parameters, lr=0.1), UpdateScope.MODEL),
        (lambda parameters: LimitedSgd(parameters, lr=0.0), UpdateScope.MODEL),
        (NormOfGroups, UpdateScope.MODEL),
        (Prodigy, UpdateScope.MODEL),
        (lambda parameters: Noisy(parameters, lr=0.1), UpdateScope.MODEL),
        (with_hook, UpdateScope.MODEL),
        (with_quiet_hook, UpdateScope.ELEMENT),
        (broken, UpdateScope.MODEL),
        (torch.optim.AdamW, UpdateScope.ELEMENT),
    ],
)
def test_the_scope_of_an_update_is_what_its_parts_differ_by(make, scope):
    assert scope_of(make) is scope


def test_trying_an_optimizer_leaves_the_model_and_the_random_numbers_alone():
    model = Layers()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    state = torch.get_rng_state()
    find_update_scope(lambda parameters: Noisy(parameters, lr=0.1), model)
    assert torch.equal(torch.get_rng_state(), state)
    pairs = zip(before, model.parameters(), strict=True)
    assert all(torch.equal(was, parameter) for was, parameter in pairs)
