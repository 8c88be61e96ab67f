"""Two convolutions on the 60,000 digits of MNIST, or on drawn ones."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn
from torch.nn.functional import nll_loss
from torch.optim import SGD

from launch.use_cases._digits_use_case import NUM_CLASSES, DigitsUseCase


class MnistCnn(DigitsUseCase):
    """The small network that most papers on MNIST train: 431,080 parameters.

    Args:
        lr: Learning rate.
    """

    name = "mnist_cnn"

    def __init__(self, lr: float = 0.01) -> None:
        self._lr = lr

    def model(self) -> nn.Sequential:
        return nn.Sequential(
            *(nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(1), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, NUM_CLASSES)),
            nn.LogSoftmax(1),
        )

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return nll_loss(output, target)

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> SGD:
        return SGD(parameters, lr=self._lr)
