"""Operations and kept memory are counted by sample, where the user's code can be run."""

from __future__ import annotations

import torch
from torch import nn

from launch.description.sample_cost import SampleCost, measure_sample
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
    assert measure_sample(OneLayer(), model, SAMPLES).flop == forward + weights + inputs


def test_a_sample_takes_the_bytes_of_its_input_and_its_target_in_a_batch():
    assert measure_sample(OneLayer(), nn.Linear(8, 4), SAMPLES).batch_bytes == 4 * (8 + 4)


class WithSparse(OneLayer):
    def collate(self, samples):
        inputs, targets = (torch.stack(part) for part in zip(*samples, strict=True))
        return inputs, targets, targets.to_sparse()

    def step(self, model, batch):
        return super().step(model, batch[:2])


def test_a_sparse_tensor_counts_for_no_bytes_and_spoils_no_count():
    """torch gives no size of it: nothing was known of the sample."""
    model = nn.Linear(8, 4)
    expected = measure_sample(OneLayer(), model, SAMPLES)
    assert expected.flop
    assert measure_sample(WithSparse(), model, SAMPLES) == expected


def test_code_that_fails_has_no_count():
    assert measure_sample(Fails(), nn.Linear(8, 4), SAMPLES) == SampleCost()


def test_a_forward_pass_keeps_inputs_and_results_but_no_weights():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    inputs, hidden, difference = 8, 16, 4  # the output of ReLU is the input of the next layer
    expected = 4 * (inputs + hidden + difference)
    assert measure_sample(OneLayer(), model, SAMPLES).kept_bytes == expected
