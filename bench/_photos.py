"""Folder with the first photos of a use case, where all of them would take too long."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from _block import BenchError
from _prepared_case import load_prepared

if TYPE_CHECKING:
    from launch.data.images.dataset import PhotoDataset

_VALIDATION_SHARE = 0.1


def link_photos(use_case: str, data: Path | None, folder: Path, num_photos: int) -> Path:
    """Link some of a use case's photos into a folder that comes with its split.

    They are spread evenly over the training photos, and so over the classes. A tenth as many of the
    validation photos go beside them.

    Args:
        use_case: Whose photos.
        data: Folder of all photos, if not those that the use case finds by itself.
        folder: A new folder.
        num_photos: Training photos.

    Returns:
        The folder: ``train/<class>/*`` and ``val/<class>/*``.

    Raises:
        BenchError: There are fewer photos, or none at all.
        UseCaseError: They cannot be made ready.
    """
    from launch.data.images.dataset import PhotoDataset  # imports torch

    case = load_prepared(use_case, data)
    train, validation = (case.dataset(data, train=part) for part in (True, False))
    if not isinstance(train, PhotoDataset) or not isinstance(validation, PhotoDataset):
        raise BenchError(f"--photos and --use-case {use_case}: it trains on no folder of photos")
    _link(train, folder / "train", num_photos)
    _link(validation, folder / "val", max(1, round(_VALIDATION_SHARE * num_photos)))
    return folder


def _link(dataset: PhotoDataset, folder: Path, count: int) -> None:
    available = len(dataset.photos)
    if count > available:
        raise BenchError(f"{count} photos of {available} in {dataset.folder}: use fewer --photos")
    for number in range(count):
        name, label = dataset.photos[number * available // count]
        place = folder / dataset.classes[label]
        place.mkdir(parents=True, exist_ok=True)
        source = (dataset.folder / name).resolve()
        (place / f"{number:05}-{source.name}").symlink_to(source)
