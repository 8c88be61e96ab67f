"""ResNet-50 on generated pictures of 1,000 classes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pictures import GeneratedPictures
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD
from torchvision.models import resnet50

_CLASSES = 1000


class ResNet50:
    """torchvision's model, with the optimizer of its reference training."""

    name = "resnet50"
    default_batch = 64
    size = 224
    samples = 8192

    def model(self) -> nn.Module:
        model: nn.Module = resnet50(weights=None, num_classes=_CLASSES)
        return model

    def dataset(self, data: Path | None, *, train: bool) -> GeneratedPictures:
        return GeneratedPictures(self.samples if train else self.samples // 16, self.size, _CLASSES)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(output, target)

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> SGD:
        return SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4)


class Small(ResNet50):
    """The same on small pictures, for machines without a GPU."""

    name = "resnet50-small"
    default_batch = 8
    size = 64
    samples = 64
