"""A convolutional network tells more of the drawn digits apart than a linear model."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from launch.use_cases._small_images.drawn_digits import make_drawn_set
from tests.launch.use_cases.heard import Heard

TRAIN, TEST = 15_000, 2_000


def accuracy(model: nn.Module, form: str, *, epochs: int) -> float:
    colours, side = form == "CIFAR-10", 32 if form == "CIFAR-10" else 28
    drawn = make_drawn_set(form, side=side, colours=colours, num_train=TRAIN, num_test=TEST)
    (images, targets), (test_images, test_targets) = (
        (
            torch.from_numpy(part.pixels).permute(0, 3, 1, 2) / 128 - 1,
            torch.from_numpy(part.labels).long(),
        )
        for part in drawn.make(Heard())
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for _ in range(epochs):
        for some in torch.randperm(TRAIN).split(64):
            optimizer.zero_grad()
            cross_entropy(model(images[some]), targets[some]).backward()
            optimizer.step()
    with torch.no_grad():
        return (model(test_images).argmax(1) == test_targets).float().mean().item()


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
    torch.manual_seed(0)
    linear = accuracy(
        nn.Sequential(nn.Flatten(1), nn.Linear(channels * side * side, 10)), form, epochs=5
    )
    network = accuracy(convolutional(channels, side), form, epochs=2)
    assert network > linear + 0.1
