"""What shares a parameter's memory goes where the parameter goes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny.kept_memory import DetachFromInit, NumpyFromInit, PartOfPicturesFromInit, PicturesFromInit
from torch import nn

from launch.errors import InvalidPlanError, UseCaseError
from launch.plan import Plan
from launch.training.averaging.aliases import aliases_follow, copy_model
from launch.training.replica import prepare_model

CHANNELS_LAST = Plan(strategy="sequential", node_batch=3, memory_format="channels_last")


class Shared(nn.Module):
    """A weight, what lies in its memory in some way, and a frozen weight in the same tensor."""

    def __init__(self) -> None:
        super().__init__()
        both = torch.arange(24.0).view(2, 3, 4)
        self.frozen = nn.Parameter(both[0], requires_grad=False)
        self.weight = nn.Parameter(both[1])
        self.row = self.weight.detach()[1]
        self.turned = [self.weight.data.t()]
        self.bits = {"low": self.weight.detach().view(torch.int32)[:, 2:]}
        self.teacher = nn.Parameter(self.weight.data, requires_grad=False)

    def check(self) -> None:
        """Hold everything against the weight."""
        assert torch.equal(self.row, self.weight[1])
        assert torch.equal(self.turned[0], self.weight.t())
        assert torch.equal(self.bits["low"].view(torch.float32), self.weight[:, 2:])
        assert torch.equal(self.teacher, self.weight)
        assert torch.equal(self.frozen, torch.arange(12.0).view(3, 4))


def test_tensors_in_the_memory_of_a_parameter_move_with_it():
    model = Shared()
    with aliases_follow(model):
        model.weight.data = model.weight.data.clone()
    with torch.no_grad():
        model.weight.mul_(-3)
    model.check()


def test_tensors_in_the_memory_of_a_parameter_are_copied_with_it():
    model = Shared()
    copied = copy_model(model)
    with torch.no_grad():
        copied.weight.mul_(-3)
    copied.check()
    model.check()
    assert isinstance(copied.teacher, nn.Parameter)


def test_a_whole_parameter_follows_into_another_memory_format():
    """`tune` takes channels_last on its own: what the constructor kept had its first values."""
    layer = prepare_model(CHANNELS_LAST, PicturesFromInit(), "cpu")
    with torch.no_grad():
        layer.weight.mul_(-3)
    assert layer.weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(layer.kept, layer.weight)


def test_a_buffer_in_the_memory_of_a_parameter_follows_too():
    layer = nn.Conv2d(6, 6, 3)
    layer.register_buffer("kept", layer.weight.detach())
    prepare_model(CHANNELS_LAST, layer, "cpu")
    with torch.no_grad():
        layer.weight.mul_(-3)
    assert layer.weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(layer.kept, layer.weight)


def test_weights_of_volumes_stay_as_they_are_beside_those_of_pictures():
    """`torch.nn.Module.to` asks for channels_last of both, which takes four dimensions alone."""
    model = nn.ModuleList([nn.Conv2d(3, 4, 2), nn.Conv3d(3, 4, 2)])
    pictures, volumes = prepare_model(CHANNELS_LAST, model, "cpu")
    assert pictures.weight.is_contiguous(memory_format=torch.channels_last)
    assert volumes.weight.is_contiguous()


def test_a_part_of_a_parameter_cannot_follow_into_another_memory_format():
    with pytest.raises(InvalidPlanError, match=r"^device=cpu and memory_format=channels_last: the"):
        prepare_model(CHANNELS_LAST, PartOfPicturesFromInit(), "cpu")
    prepare_model(
        replace(CHANNELS_LAST, memory_format="contiguous"), PartOfPicturesFromInit(), "cpu"
    )


def test_what_does_not_move_may_share_its_memory():
    prepare_model(CHANNELS_LAST, NumpyFromInit(), "cpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use")
def test_tensors_in_the_memory_of_a_parameter_move_to_a_gpu_with_it():
    layer = DetachFromInit()
    layer.register_buffer("held", layer.weight.detach())
    prepare_model(Plan(strategy="sequential", node_batch=3), layer, "cuda:0")
    with torch.no_grad():
        layer.weight.mul_(-3)
    assert torch.equal(layer.kept, layer.weight.t()[1:])
    assert torch.equal(layer.held, layer.weight)


def test_parameters_in_one_tensor_that_nobody_keeps_are_moved_one_by_one():
    model = nn.ParameterList(list(torch.arange(24.0).view(2, 3, 4)))
    with aliases_follow(model):
        for parameter in model:
            parameter.data = parameter.data.clone()
    assert [parameter.sum() for parameter in model] == [66, 210]


def test_a_tensor_larger_than_the_parameter_cannot_follow():
    both = torch.zeros(2, 3)
    model = nn.ParameterList(list(both))
    with (
        pytest.raises(UseCaseError, match="parameter '0' shares its memory"),
        aliases_follow(model),
    ):
        pass
