"""Fused optimizers: the same one, made anew."""

from __future__ import annotations

import pytest
import tiny_cases
import torch
from described_cases import described
from torch import nn

from launch.errors import InvalidPlanError, UseCaseError
from launch.plan import Plan
from launch.training.averaging.optimizer import has_fused_form, make_optimizer
from launch.use_cases._adapter import adapt_use_case

FUSED = Plan(strategy="sequential", node_batch=8, fused_optimizer=True)


def made(plan: Plan, case: type) -> torch.optim.Optimizer:
    own = adapt_use_case(case, "tiny")
    model = own.model()
    return make_optimizer(plan, own, model.parameters(), model)


@pytest.mark.parametrize("case", ["Sgd", "AdamW", "Adagrad", "Groups"])
def test_a_fused_optimizer_keeps_the_settings_of_every_group(case):
    case = getattr(tiny_cases, case)
    plain = made(Plan(strategy="sequential", node_batch=8), case)
    fused = made(FUSED, case)
    assert type(fused) is type(plain)
    assert has_fused_form(plain)
    assert len(fused.param_groups) == len(plain.param_groups)
    for ours, theirs in zip(fused.param_groups, plain.param_groups, strict=True):
        assert ours["fused"] is True
        assert [p.shape for p in ours["params"]] == [p.shape for p in theirs["params"]]
        for key in theirs.keys() - {"params", "fused"}:
            assert ours[key] == theirs[key], key
    assert fused.defaults == plain.defaults | {"fused": True}


def test_a_plan_that_is_not_fused_leaves_the_optimizer_to_the_use_case():
    assert made(Plan(strategy="sequential", node_batch=8), tiny_cases.Sgd).defaults["fused"] is None


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.ones(3))]


def watched() -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(parameters())
    optimizer.register_step_post_hook(lambda optimizer, args, kwargs: None)
    return optimizer


WITHOUT = [
    (lambda: torch.optim.RMSprop(parameters()), "RMSprop"),
    (lambda: tiny_cases.SteepSgd(parameters()), "SteepSgd"),
    (lambda: torch.optim.SGD(parameters(), differentiable=True), "differentiable=True"),
    (lambda: torch.optim.SGD(parameters(), momentum=0.9, dampening=0.1), "dampening=0.1"),
    (lambda: torch.optim.SGD([nn.Parameter(torch.ones(1, dtype=torch.cfloat))]), "floating"),
    (watched, "hooks"),
]


@pytest.mark.parametrize(("make", "why"), WITHOUT, ids=[why for _, why in WITHOUT])
def test_an_optimizer_without_a_fused_form_is_refused_with_the_reason(make, why):
    optimizer = make()

    class Own(tiny_cases.Sgd):
        def model(self):
            return nn.ParameterList(optimizer.param_groups[0]["params"])

        def optimizer(self, parameters):
            return optimizer

    assert not has_fused_form(optimizer)
    with pytest.raises(InvalidPlanError, match=rf"fused_optimizer=True.*{why}.*: use"):
        made(FUSED, Own)


def test_a_fused_optimizer_takes_a_gradient_that_comes_late():
    """The story: torch's fused SGD fails where some momenta exist and others do not."""

    class Own(tiny_cases.Sgd):
        def model(self):
            return nn.ParameterList([torch.ones(4), torch.ones(4)])

    optimizer = made(FUSED, Own)
    early, late = optimizer.param_groups[0]["params"]
    early.grad = torch.ones(4)
    optimizer.step()
    torch.testing.assert_close(late.detach(), torch.full((4,), 1.0))
    late.grad = torch.ones(4)
    optimizer.step()
    torch.testing.assert_close(late.detach(), torch.full((4,), 0.95))
    torch.testing.assert_close(early.detach(), torch.full((4,), 1 - 0.05 - 0.05 * 1.9))


@pytest.mark.parametrize(
    ("case", "has_fused", "in_parts"),
    [
        ("Sgd", True, True),
        ("Scheduled", True, False),
        ("WholeTensors", False, False),
        ("Clipped", True, False),
    ],
)
def test_planner_is_told_what_can_be_done_with_the_optimizer(case, has_fused, in_parts):
    facts = described(case)[-1].facts
    assert (facts.has_fused_optimizer, facts.updates_in_parts) == (has_fused, in_parts)


class ManySteps(tiny_cases.Sgd):
    def optimizer(self, parameters):
        return torch.optim.LBFGS(parameters)


def test_an_optimizer_that_evaluates_the_model_by_itself_is_refused_by_every_step():
    with pytest.raises(UseCaseError, match=r"optimizer LBFGS .*'closure'.*: use"):
        made(Plan(strategy="sequential", node_batch=8), ManySteps)


class TrainsItsLoss(tiny_cases.Sgd):
    def optimizer(self, parameters):
        return torch.optim.SGD([*parameters, nn.Parameter(torch.ones(5))], lr=0.1)


def test_an_optimizer_of_what_is_no_part_of_the_model_is_refused_by_every_step():
    """The story: a parameter of the loss was left as it was by several workers, and one added its
    gradients up from step to step."""
    with pytest.raises(
        UseCaseError, match=r"SGD trains a tensor of shape \(5,\) that is no .*: make"
    ):
        made(Plan(strategy="sequential", node_batch=8), TrainsItsLoss)
