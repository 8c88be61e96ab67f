"""How workers that each train a part of a model come to see all of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from launch.errors import UseCaseError
from launch.local_group.group import LocalGroup, LocalThreadGroup
from launch.training.whole_model import WholeModel, move_in_place

CPU = torch.device("cpu")
GPU = torch.device("cuda:0")

State = dict[str, torch.Tensor]


def two_layers() -> list[nn.Module]:
    return [nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)]


class Stage:
    """One of two workers: the first trains the first two layers, the other the last two."""

    def __init__(self, model: nn.Sequential, group: LocalGroup) -> None:
        self._model = model
        self._whole = WholeModel(model, group)
        first = 2 * group.local_rank
        self.own = model[first : first + 2]

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [*self.own.parameters(), *self.own.buffers()]

    def train(self, device: torch.device) -> State:
        """Change every tensor of the stage in place, as steps do, and give the agreed model."""
        with torch.no_grad():
            for number, tensor in enumerate(self.tensors, start=2):
                tensor.fill_(number)
        self._whole.sync_model(self.tensors, device)
        return self._model.state_dict()


def on_each(work: Callable[[Stage], State]) -> list[State]:
    """Let both workers do the same, each with its own copy of one model."""
    model = nn.Sequential(*two_layers(), *two_layers())
    groups = LocalThreadGroup.create([(), ()])

    def run(model: nn.Sequential, group: LocalThreadGroup) -> State:
        try:
            return work(Stage(model, group))
        except BaseException:
            group.abort()
            raise

    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(run, copy.deepcopy(model), group) for group in groups]
        return [call.result(timeout=60) for call in calls]


def assert_trained(states: list[State]) -> None:
    """Hold both workers' models against what the owner of each tensor made of it."""
    for state in states:
        numbers = [set(value.flatten().tolist()) for value in state.values()]
        assert numbers == 2 * [{2 + place} for place in range(7)], list(state)


@pytest.mark.parametrize("device", [CPU, pytest.param(GPU, marks=pytest.mark.gpu)], ids=str)
def test_every_worker_sees_what_each_has_made_of_its_stage(device):
    """The story: a stage was brought to its GPU by `Module.to`, which makes new buffers, and the
    running statistics of no stage reached the weights that were saved."""

    def work(stage: Stage) -> State:
        move_in_place(stage.own, device)
        return stage.train(device)

    assert_trained(on_each(work))


def test_tensors_are_agreed_on_wherever_their_memory_is():
    def work(stage: Stage) -> State:
        for tensor in stage.tensors:
            tensor.data = tensor.detach().clone()
        return stage.train(CPU)

    assert_trained(on_each(work))


def test_a_tensor_that_the_model_did_not_begin_with_is_refused():
    norm = nn.BatchNorm2d(4)
    (group,) = LocalThreadGroup.create([()])
    whole = WholeModel(norm, group)
    norm.running_mean = norm.running_mean.clone()
    with pytest.raises(UseCaseError, match=r"of shape \(4,\) .*: keep its parameters and buffers"):
        whole.sync_model(norm.buffers(), CPU)
