"""A convolutional network tells more of the drawn digits apart than a linear model."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from launch.use_cases._small_images.drawn_digits import make_drawn_set
from tests.launch.use_cases.heard import Heard

TRAIN, TEST = 15_000, 2_000
BATCH = 64
EPOCH_STEPS = -(-TRAIN // BATCH)
LOOK_EVERY = EPOCH_STEPS // 5
"""Steps until the network is tested again: the last time, both of its epochs are over."""

Labelled = tuple[torch.Tensor, torch.Tensor]
"""Images and their targets."""


def draw(form: str, side: int) -> tuple[Labelled, Labelled]:
    """Draw digits to train on and to test with."""
    colours = form == "CIFAR-10"
    drawn = make_drawn_set(form, side=side, colours=colours, num_train=TRAIN, num_test=TEST)
    train, test = (
        (
            torch.from_numpy(part.pixels).permute(0, 3, 1, 2) / 128 - 1,
            torch.from_numpy(part.labels).long(),
        )
        for part in drawn.make(Heard())
    )
    return train, test


def train_steps(
    model: nn.Module, images: torch.Tensor, targets: torch.Tensor, *, epochs: int
) -> Iterator[int]:
    """Train a model; give the number of each step, from 1, once it is made."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    batches = (some for _ in range(epochs) for some in torch.randperm(TRAIN).split(BATCH))
    for number, some in enumerate(batches, 1):
        optimizer.zero_grad()
        cross_entropy(model(images[some]), targets[some]).backward()
        optimizer.step()
        yield number


def accuracy(model: nn.Module, images: torch.Tensor, targets: torch.Tensor) -> float:
    with torch.no_grad():
        return (model(images).argmax(1) == targets).float().mean().item()


def convolutional(channels: int, side: int) -> nn.Module:
    left = ((side - 4) // 2 - 4) // 2
    return nn.Sequential(
        *(nn.Conv2d(channels, 20, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(1), nn.Linear(50 * left * left, 500), nn.ReLU(), nn.Linear(500, 10)),
    )


@pytest.mark.long
@pytest.mark.parametrize(("form", "channels", "side"), [("MNIST", 1, 28), ("CIFAR-10", 3, 32)])
def test_a_network_is_at_least_ten_points_better_than_a_linear_model(form, channels, side):
    """After two epochs at most, where the linear model has five."""
    train, test = draw(form, side)
    torch.manual_seed(0)
    linear = nn.Sequential(nn.Flatten(1), nn.Linear(channels * side * side, 10))
    for _ in train_steps(linear, *train, epochs=5):
        pass
    wanted = accuracy(linear, *test) + 0.1
    network = convolutional(channels, side)
    found = (
        accuracy(network, *test)
        for number in train_steps(network, *train, epochs=2)
        if number % LOOK_EVERY == 0
    )
    assert any(one > wanted for one in found)
