"""What do use cases have in common that tell fire, smoke and neither apart on photos?"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD
from torch.utils.data import Dataset

from launch.use_cases._base import Report, UseCase

NUM_CLASSES = 3


class PhotoUseCase(UseCase):
    """Photos in folders, one per class, trained as Lerat, Mahmoudi and Mahmoudi (2022) do.

    Attributes:
        num_photos: Photos, validation included, that are generated where the user has none.
    """

    num_photos: int

    def dataset(self, data: Path | None, *, train: bool) -> Dataset[Any]:
        raise NotImplementedError

    def prepare(self, data: Path | None, report: Report) -> None:
        raise NotImplementedError

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(output, target)

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> SGD:
        return SGD(parameters, lr=0.001, momentum=0.9)

    def layers(self, model: nn.Module) -> nn.Sequential:
        """Give torchvision's AlexNet or VGG, which flattens in ``forward``, as one flat sequence."""
        features, classifier = model.get_submodule("features"), model.get_submodule("classifier")
        average = model.get_submodule("avgpool")
        return nn.Sequential(*features.children(), average, nn.Flatten(1), *classifier.children())

    def metrics(self, output: Tensor, target: Tensor) -> dict[str, float]:
        return {"accuracy": (output.argmax(1) == target).float().mean().item()}
