"""A network of torchvision on pictures in folders, one per class; needs --data."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torchvision.models
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD
from torchvision.models import get_model, list_models

from launch.data.images.dataset import PhotoDataset
from launch.data.images.index import read_index, update_index
from launch.errors import UseCaseError
from launch.reports import PreparationReporter
from launch.use_cases._base import UseCase
from launch.use_cases._vision_layers import find_layers
from probes.cpu import read_cpu

WITHOUT_DATA = (
    "imagefolder has no pictures of its own: name a folder with one sub-folder of pictures per "
    "class with --data DIR"
)
"""Read without importing this module, by `launch.use_cases.check_has_data`."""

_SMALLEST = 32


class ImageFolder(UseCase):
    """Pictures, scaled, cropped to a square, mirrored at random; and a network of torchvision.

    ``DIR/<class>/*`` with a tenth for validation, or ``DIR/train/<class>/*`` and ``DIR/val/...``.

    Args:
        data: Where the pictures are.
        model: A network of torchvision that classifies, with random weights.
        size: Height and width of the pictures that it is given.
        lr: Learning rate.
        momentum: Of SGD.
    """

    name = "imagefolder"
    default_batch = 32

    def __init__(
        self,
        data: Path | None = None,
        model: str = "resnet18",
        size: int = 224,
        lr: float = 0.01,
        momentum: float = 0.9,
    ) -> None:
        names = list_models(module=torchvision.models)
        if model not in names:
            close = get_close_matches(model.lower(), names, n=3, cutoff=0.4)
            hint = f"did you mean {' or '.join(close)}?" if close else f"one is {names[0]}"
            raise UseCaseError(f"torchvision has no network {model!r} that classifies: {hint}")
        if size < _SMALLEST:
            raise UseCaseError(f"size={size} of pictures: use at least {_SMALLEST}")
        self._data, self._model, self._size = data, model, size
        self._lr, self._momentum = lr, momentum

    def model(self) -> nn.Module:
        classes = read_index(self._folder(self._data)).classes
        model: nn.Module = get_model(
            self._model, weights=None, num_classes=len(classes), **self._own_arguments()
        )
        return model

    def dataset(self, data: Path | None, *, train: bool) -> PhotoDataset:
        return PhotoDataset(self._folder(data), train=train, side=self._size)

    def prepare(self, data: Path | None, report: PreparationReporter) -> None:
        update_index(self._folder(data), report, cores=read_cpu().usable_cores)

    def layers(self, model: nn.Module) -> nn.Sequential | None:
        return find_layers(model)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(output, target)

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> SGD:
        return SGD(parameters, lr=self._lr, momentum=self._momentum)

    def metrics(self, output: Tensor, target: Tensor) -> dict[str, float]:
        return {"accuracy": (output.argmax(1) == target).float().mean().item()}

    def _own_arguments(self) -> dict[str, Any]:
        """Give what some networks want: the size of pictures, or a single output."""
        if self._model.startswith("vit_"):
            return {"image_size": self._size}
        if self._model.startswith("maxvit"):
            return {"input_size": (self._size, self._size)}
        if self._model in ("googlenet", "inception_v3"):
            return {"aux_logits": False, "init_weights": True}
        return {}

    @staticmethod
    def _folder(data: Path | None) -> Path:
        if data is None:
            raise UseCaseError(WITHOUT_DATA)
        return data
