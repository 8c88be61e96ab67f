"""ResNet-18 on the 60,000 digits of MNIST, or on drawn ones."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD
from torchvision.models import resnet18

from launch.use_cases._digits_use_case import NUM_CLASSES, DigitsUseCase
from launch.use_cases._vision_layers import find_layers


class MnistResnet18(DigitsUseCase):
    """torchvision's ResNet-18; its first convolution is 3 x 3, on one channel.

    Args:
        lr: Learning rate.
    """

    name = "mnist_resnet18"

    def __init__(self, lr: float = 0.01) -> None:
        self._lr = lr

    def model(self) -> nn.Module:
        model: nn.Module = resnet18(weights=None, num_classes=NUM_CLASSES)
        model.conv1 = nn.Conv2d(1, 64, 3, padding=1, bias=False)
        return model

    def layers(self, model: nn.Module) -> nn.Sequential | None:
        return find_layers(model)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(output, target)

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> SGD:
        return SGD(parameters, lr=self._lr, momentum=0.9)
