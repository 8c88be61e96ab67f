"""Base of use cases that classify photos: fire, smoke or neither."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from launch.data.images.dataset import PhotoDataset
from launch.data.images.index import update_index
from launch.errors import UseCaseError
from launch.reports import PreparationReporter
from launch.use_cases._base import UseCase
from launch.use_cases._painted.photo_set import PhotoSet
from launch.use_cases._vision_layers import find_layers
from probes.cpu import read_cpu

NUM_CLASSES = 3


class PhotoUseCase(UseCase):
    """Photos in folders, one per class, trained as Lerat, Mahmoudi and Mahmoudi (2022) do.

    Attributes:
        num_photos: Photos, validation included, that are painted where the user has none.
    """

    num_photos: int

    def dataset(self, data: Path | None, *, train: bool) -> PhotoDataset:
        dataset = PhotoDataset(data or self._painted.folder, train=train, is_generated=data is None)
        self._check_classes(dataset.folder, dataset.classes)
        return dataset

    def prepare(self, data: Path | None, report: PreparationReporter) -> None:
        cores = read_cpu().usable_cores
        painted = data is None and self._painted.paint(report, cores=cores)
        folder = data or self._painted.folder
        split = update_index(folder, report, cores=cores, trusted=painted)
        self._check_classes(folder, split.classes)

    @property
    def _painted(self) -> PhotoSet:
        return PhotoSet(self.name, self.num_photos)

    def _check_classes(self, folder: Path, classes: Sequence[str]) -> None:
        if len(classes) > NUM_CLASSES:
            raise UseCaseError(
                f"data folder {folder} has {len(classes)} classes ({', '.join(classes)}) and "
                f"{self.name} has {NUM_CLASSES} outputs: use at most {NUM_CLASSES} sub-folders, "
                "or a use case of your own"
            )

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(output, target)

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> SGD:
        return SGD(parameters, lr=0.001, momentum=0.9)

    def layers(self, model: nn.Module) -> nn.Sequential | None:
        return find_layers(model)

    def metrics(self, output: Tensor, target: Tensor) -> dict[str, float]:
        return {"accuracy": (output.argmax(1) == target).float().mean().item()}
