"""Data set of photos: each scaled, cropped, randomly mirrored and normalised."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import PIL
import torch
import torchvision
from numpy.typing import NDArray
from PIL import Image, features
from torch import Tensor
from torch.utils.data import Dataset
from torchvision import transforms

from launch.data.images.image_file import read_photo
from launch.data.images.index import read_index, read_stamps
from launch.data.images.normalisation import flip_and_normalise
from launch.errors import UseCaseError

RESIZE_SIDE, CROP_SIDE = 256, 224
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
_FLIP_PROBABILITY = 0.5
"""Probability that a training photo is mirrored."""

_PIXELS_VERSION = 1
"""Goes up with every change to what `PhotoDataset.pixels` gives for the same file."""


class PhotoDataset(Dataset[tuple[Tensor, int]]):
    """Photos as tensors, channels x height x width, each with the number of its class.

    Opens a photo when it is read. Can be decoded once: it is one of
    `launch.data.pictures.Pictures`.

    Attributes:
        folder: Where the photos are.
        classes: Names of the classes, by number.
        photos: Relative name and class of each sample.
        is_generated: Whether they are made up.

    Raises:
        UseCaseError: The folder was not prepared.
    """

    def __init__(
        self, folder: Path, *, train: bool, is_generated: bool = False, side: int = CROP_SIDE
    ) -> None:
        split = read_index(folder)
        self.is_generated = is_generated
        self.folder = folder
        self.classes = split.classes
        self.photos = split.train if train else split.validation
        self._train = train
        self._side = side
        self._resize_side = side * RESIZE_SIDE // CROP_SIDE
        # Names are joined to paths here and now, as text: a Path costs 10 us per sample.
        self._files = [f"{folder.absolute()}/{name}" for name, _ in self.photos]
        self._scale = transforms.Compose(
            [transforms.Resize(self._resize_side), transforms.CenterCrop(side)],
        )
        mirror = [transforms.RandomHorizontalFlip(_FLIP_PROBABILITY)] if train else []
        self._finish = transforms.Compose(
            [*mirror, transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
        )

    def __len__(self) -> int:
        return len(self.photos)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self._finish(self._read(index)), self.target(index)

    def pixels_name(self) -> str:
        return f"{self.folder.resolve()} {'train' if self._train else 'validation'} {self._side}"

    def pixels_key(self) -> str:
        stamps = read_stamps(self.folder)
        # Each of these may decode or scale to other pixels in its next version.
        made_by = (
            _PIXELS_VERSION,
            PIL.__version__,
            features.version("jpg"),
            torchvision.__version__,
        )
        files = [(name, stamps.get(name)) for name, _ in self.photos]
        return json.dumps([made_by, self._resize_side, self._side, files])

    def pixel_shape(self) -> tuple[int, int, int]:
        return self._side, self._side, 3

    def pixels(self, index: int) -> NDArray[np.uint8]:
        return np.asarray(self._read(index))

    def target(self, index: int) -> int:
        return self.photos[index][1]

    def draw(self, count: int) -> Tensor | None:
        # The numbers, and the state of the generator after them, are those of as many calls of
        # RandomHorizontalFlip, which draws one number each.
        return torch.rand(count) < _FLIP_PROBABILITY if self._train else None

    def finish(self, pixels: Tensor, drawn: Tensor | None) -> Tensor:
        return flip_and_normalise(pixels, drawn, MEAN, STD)

    def _read(self, index: int) -> Image.Image:
        try:
            photo: Image.Image = self._scale(read_photo(self._files[index]))
        except (OSError, SyntaxError, ValueError) as error:
            raise UseCaseError(
                f"photo {self._files[index]} could be read before and cannot now ({error}): "
                "put it back, or start again to leave it out"
            ) from error
        return photo
