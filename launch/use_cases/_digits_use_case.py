"""Base of use cases that classify the digits of MNIST."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from launch.reports import PreparationReporter
from launch.use_cases._base import UseCase
from launch.use_cases._small_images.dataset import SmallImages
from launch.use_cases._small_images.drawn_digits import make_drawn_set
from launch.use_cases._small_images.idx import find_mnist
from launch.use_cases._small_images.labelled_images import ImageSet

NUM_CLASSES = 10
_MEAN, _DEVIATION = (0.1307,), (0.3081,)
_DRAWN = make_drawn_set("MNIST", side=28, colours=False, num_train=60_000, num_test=10_000)


class DigitsUseCase(UseCase):
    """MNIST from ``--data``, or drawn digits in its form."""

    default_batch = 32

    def dataset(self, data: Path | None, *, train: bool) -> SmallImages:
        images = self._find(data)
        return SmallImages(images, train=train, mean=_MEAN, deviation=_DEVIATION)

    def prepare(self, data: Path | None, report: PreparationReporter) -> None:
        self._find(data).prepare(report)

    def metrics(self, output: Tensor, target: Tensor) -> dict[str, float]:
        return {"accuracy": (output.argmax(1) == target).float().mean().item()}

    def _find(self, data: Path | None) -> ImageSet:
        return _DRAWN if data is None else find_mnist(data)
