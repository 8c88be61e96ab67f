"""A perceptron of three layers on drawn digits, for `record_grid.py`."""

from __future__ import annotations

from torch import nn

from launch.use_cases.mnist_cnn import MnistCnn


class Mlp(MnistCnn):
    """Large layers without a convolution: 5.3 million parameters, most of them in one matrix."""

    name = "mlp"

    def model(self) -> nn.Sequential:
        return nn.Sequential(
            *(nn.Flatten(1), nn.Linear(784, 2048), nn.ReLU()),
            *(nn.Linear(2048, 1776), nn.ReLU(), nn.Linear(1776, 10)),
            nn.LogSoftmax(1),
        )
