"""Updates wait for the next step where every use of a parameter is seen, and only there."""

from __future__ import annotations

from collections.abc import Callable

import late_cases
import pytest
import torch
import torchvision
from torch import nn
from torch.utils.checkpoint import checkpoint

from launch.use_cases import resolve
from tests.launch.training.averaging.late_training import train_late

SAMPLES = 2


def is_late(model: nn.Module, side: int = 16) -> bool:
    """Train three steps; say whether the third leaves its update to the fourth."""
    batches = [torch.ones(SAMPLES, 3, side, side)] * 3
    return train_late(model, batches, lambda output: output.float().mean() * 1.0).is_late[-1]


def empty(make: Callable[[], nn.Module]) -> nn.Module:
    """Make a model without drawing its weights, which takes longer than its steps."""
    with torch.device("meta"):
        model = make()
    model.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.zero_()
    return model


@pytest.mark.long
@pytest.mark.parametrize("name", ["simplebig", "complexsmall", "cifar_resnet44"])
def test_every_use_is_seen_in_the_models_of_the_use_cases(name):
    assert is_late(empty(resolve(name).load().model), side=64)


def test_every_use_is_seen_in_a_network_with_residuals_and_batch_norm():
    assert is_late(empty(torchvision.models.resnet18), side=32)


class Sized(nn.Module):
    """Makes of each picture as many numbers as the layer in the middle takes."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.first = nn.Linear(768, 8)
        self.layer = layer
        self.last = nn.Linear(8, 3)

    def forward(self, pictures):
        return self.last(self.layer(self.first(pictures.flatten(1))))


class Sequences(nn.Module):
    """Runs a layer that takes sequences."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, hidden):
        output = self.layer(hidden[:, None])
        return (output[0] if isinstance(output, tuple) else output)[:, 0]


class Checkpointed(nn.Linear):
    def forward(self, hidden):
        return checkpoint(super().forward, hidden, use_reentrant=False)


class Cast(nn.Linear):
    """Under autocast: its weight is cast once, for two uses."""

    def forward(self, hidden):
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(super().forward(hidden)).float()


class Written(nn.Linear):
    """Its parameters are written into a part of another tensor."""

    def forward(self, hidden):
        table = torch.zeros(9, 8)
        table[0] = self.bias
        table[1:].add_(self.weight)
        return hidden @ table[1:] + table[0]


class Punished(nn.Linear):
    """Its gradient is a part of the loss."""

    def forward(self, hidden):
        output = super().forward(hidden)
        (slope,) = torch.autograd.grad(output.tanh().sum(), hidden, create_graph=True)
        return output + slope.square().mean()


SEEN = {
    "attention": lambda: Sequences(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)),
    "recurrent": lambda: Sequences(nn.LSTM(8, 8, 2, batch_first=True)),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)),
    "checkpointed": lambda: Checkpointed(8, 8),
    "cast": lambda: Cast(8, 8),
    "written": lambda: Written(8, 8),
    "punished": lambda: Punished(8, 8),
}


@pytest.mark.parametrize("make", SEEN.values(), ids=SEEN.keys())
def test_every_use_is_seen_of_what_pytorch_offers(make):
    assert is_late(Sized(make()))


class Penalised(nn.Module):
    """Every parameter is used where that is seen, when the step has used it already."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pictures):
        output = self.model(pictures)
        return output + sum(parameter.square().sum() for parameter in self.model.parameters())


class HiddenSlice(late_cases.Hidden):
    """What was made unseen is changed in place, through a view of it, before it is used."""

    def forward(self, hidden):
        output = super().forward(hidden)
        output[:, :4].add_(1)
        return output


class Kept(nn.Linear):
    """Keeps a view of its weight from the first step on."""

    def forward(self, hidden):
        if not hasattr(self, "view"):
            self.view = self.weight[:4]
        return super().forward(hidden) + (hidden[:, :4] @ self.view).sum()


# Scripts and functions of one's own, and what they compute, test_hidden_uses.py has.
UNSEEN = {
    "hidden": lambda: late_cases.Hidden(8, 8),
    "seen later": lambda: late_cases.LookedAtLater(8, 8, bias=False),
    "changed in place": lambda: HiddenSlice(8, 8),
    "kept": lambda: Kept(8, 8),
}


@pytest.mark.parametrize("make", UNSEEN.values(), ids=UNSEEN.keys())
def test_no_update_waits_where_something_uses_a_parameter_unseen(make):
    assert not is_late(Sized(make()))


@pytest.mark.parametrize("make", UNSEEN.values(), ids=UNSEEN.keys())
def test_no_update_waits_where_the_same_parameter_is_seen_later(make):
    """The story: a penalty over all parameters was taken for the use that had come before it."""
    assert not is_late(Penalised(Sized(make())))


def test_a_penalty_alone_hides_nothing():
    assert is_late(Penalised(Sized(nn.Linear(8, 8))))
