"""Operations are counted by sample, where the user's code can be run."""

from __future__ import annotations

import torch
from torch import nn

from launch.description.flop_count import count_flop
from launch.use_cases._base import UseCase


class OneLayer(UseCase):
    def loss(self, output, target):
        return (output - target).square().mean()


class Fails(OneLayer):
    def loss(self, output, target):
        raise ValueError("no such class")


SAMPLES = [(torch.ones(8), torch.ones(4)) for _ in range(3)]


def test_a_linear_layer_costs_two_products_of_its_weights_and_one_for_its_input():
    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))
    forward, weights, inputs = 2 * (8 * 16 + 16 * 4), 2 * (8 * 16 + 16 * 4), 2 * 16 * 4
    assert count_flop(OneLayer(), model, SAMPLES) == forward + weights + inputs


def test_code_that_fails_has_no_count():
    assert count_flop(Fails(), nn.Linear(8, 4), SAMPLES) is None
