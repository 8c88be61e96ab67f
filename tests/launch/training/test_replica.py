"""A micro-batch on its device: what it weighs is known before it is computed."""

from __future__ import annotations

import pytest
import tiny_cases
import torch

from launch.data.split import BatchSize
from launch.plan import Plan
from launch.training.loss import read_weight, weigh_async
from launch.training.replica import Replica

PLAN = Plan(strategy="sequential", node_batch=6, micro_batches=3)


class Read:
    """A weight that tells when it is read."""

    def __init__(self, number: int, told: list[str]) -> None:
        self._number = number
        self._told = told

    def __float__(self) -> float:
        self._told.append(f"read {self._number}")
        return 2.0


class Telling(tiny_cases.Sgd):
    """Tells what is done with micro-batches whose targets are their numbers."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def weight(self, batch):
        number = int(batch[1][0])
        self.told.append(f"weighed {number}")
        return Read(number, self.told)

    def step(self, model, batch):
        self.told.append(f"computed {int(batch[1][0])}")
        return super().step(model, batch)


def test_a_micro_batch_is_weighed_before_the_one_in_front_of_it_is_computed():
    """The story: to read its weight, a step waited until the GPU had computed the one in front of
    it, and then had nothing for the GPU to do."""
    case = Telling()
    replica = Replica(PLAN, case, case.model(), "cpu")
    batch = (torch.randn(6, 3, 8, 8), torch.tensor([0, 0, 1, 1, 2, 2]))
    assert replica.gradients(batch, BatchSize(6, 6)).weight == pytest.approx(1.0)
    assert case.told == [
        *("weighed 0", "weighed 1", "read 0", "computed 0"),
        *("weighed 2", "read 1", "computed 1"),
        *("read 2", "computed 2"),
    ]


class Counts(tiny_cases.Sgd):
    def weight(self, batch):
        return (batch != 0).sum()


@pytest.mark.gpu
def test_a_weight_on_a_gpu_is_read_without_waiting_for_what_came_after_it():
    weight = weigh_async(Counts(), torch.tensor([1, 0, 2], device="cuda"))
    torch.cuda._sleep(10**9)  # half a second and more
    assert read_weight(weight) == 2.0
    assert not torch.cuda.current_stream().query()
