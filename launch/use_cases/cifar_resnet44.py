"""ResNet-44 on the 50,000 images of CIFAR-10, or on drawn ones."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad, relu
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import MultiStepLR

from launch.errors import UseCaseError
from launch.reports import PreparationReporter
from launch.use_cases._base import UseCase
from launch.use_cases._small_images.cifar import find_cifar
from launch.use_cases._small_images.dataset import SmallImages
from launch.use_cases._small_images.drawn_digits import make_drawn_set
from launch.use_cases._small_images.labelled_images import ImageSet

NUM_CLASSES = 10
_BLOCKS = 7
"""Blocks of two convolutions for each size: 6 * 7 + 2 = 44 layers."""

_PADDING = 4
_MEAN, _DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
_TRAIN, _TEST = 50_000, 10_000
_DRAWN = make_drawn_set("CIFAR-10", side=32, colours=True, num_train=_TRAIN, num_test=_TEST)


class _ResidualBlock(nn.Module):
    """Two convolutions and a shortcut, which has no parameters.

    Where the channels double and the sides halve, the shortcut takes every other row and column and
    has zeros in the new channels: option A of the paper.
    """

    def __init__(self, ins: int, outs: int) -> None:
        super().__init__()
        self.stride, self.added = outs // ins, outs - ins
        self.conv1 = nn.Conv2d(ins, outs, 3, self.stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outs)
        self.conv2 = nn.Conv2d(outs, outs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outs)

    def forward(self, images: Tensor) -> Tensor:
        hidden = relu(self.bn1(self.conv1(images)))
        shortcut = images
        if self.added:
            shortcut = images[:, :, :: self.stride, :: self.stride]
            shortcut = pad(shortcut, (0, 0, 0, 0, self.added // 2, self.added - self.added // 2))
        return relu(self.bn2(self.conv2(hidden)) + shortcut)


class CifarResnet44(UseCase):
    """The network for CIFAR-10 of He et al. with 6n + 2 layers, n = 7: 0.66 million parameters.

    Source: "Deep Residual Learning for Image Recognition", 2015, section 4.2,
    https://arxiv.org/abs/1512.03385.

    Args:
        lr: Learning rate, until half of the epochs.
        images: Train with the first so many images, and test with a fifth as many; all of them
            where left out.

    Raises:
        UseCaseError: There are not so many.
    """

    name = "cifar_resnet44"
    default_batch = 128

    def __init__(self, lr: float = 0.1, images: int | None = None) -> None:
        least = _TRAIN // _TEST
        if images is not None and not least <= images <= _TRAIN:
            raise UseCaseError(f"images={images}: use a number from {least} to {_TRAIN}")
        self._lr, self._images = lr, images

    def model(self) -> nn.Sequential:
        widths = [16] * _BLOCKS + [32] * _BLOCKS + [64] * _BLOCKS
        blocks = [
            _ResidualBlock(ins, outs) for ins, outs in zip([16, *widths], widths, strict=False)
        ]
        first = (nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        last = (nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(64, NUM_CLASSES))
        model = nn.Sequential(*first, *blocks, *last)
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        return model

    def dataset(self, data: Path | None, *, train: bool) -> SmallImages:
        most = self._images
        if most is not None and not train:
            most = most * _TEST // _TRAIN
        return SmallImages(
            self._find(data),
            train=train,
            mean=_MEAN,
            deviation=_DEVIATION,
            padding=_PADDING,
            most=most,
        )

    def prepare(self, data: Path | None, report: PreparationReporter) -> None:
        self._find(data).prepare(report)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(output, target)

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> SGD:
        return SGD(parameters, lr=self._lr, momentum=0.9, weight_decay=1e-4)

    def schedule(self, optimizer: Optimizer, steps_per_epoch: int, epochs: int) -> MultiStepLR:
        steps = steps_per_epoch * epochs
        return MultiStepLR(optimizer, [steps // 2, steps * 3 // 4])

    def metrics(self, output: Tensor, target: Tensor) -> dict[str, float]:
        return {"accuracy": (output.argmax(1) == target).float().mean().item()}

    def _find(self, data: Path | None) -> ImageSet:
        return _DRAWN if data is None else find_cifar(data)
