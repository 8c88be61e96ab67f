"""Small images with their labels, as arrays in the cache that every worker maps into memory."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from launch.errors import UseCaseError
from launch.reports import PreparationReporter
from launch.system.cache import cache_folder, cache_lock, make_cache_write_error

VERSION = 1
"""Goes up with every change to the files of a set."""


@dataclass(frozen=True, slots=True)
class LabelledImages:
    """Images and the number of the class of each."""

    pixels: NDArray[np.uint8]
    """Images x height x width x channels."""

    labels: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSet:
    """A training and a test set, which are stored as arrays once."""

    name: str
    """Names where the images are from, and stays when they change."""

    key: str
    """Changes when any of them may have."""

    make: Callable[[PreparationReporter], tuple[LabelledImages, LabelledImages]]
    """Makes both sets, for training and for testing."""

    is_generated: bool = False
    """Whether the images are made up."""

    def prepare(self, report: PreparationReporter) -> None:
        """Store the arrays, unless they are there; older ones of the same name are removed.

        Raises:
            UseCaseError: The images cannot be read, or the cache cannot be written.
        """
        folder = self._folder
        if folder.is_dir():
            return
        part = folder.with_name(f"{folder.name}.part")
        on_wait = partial(report.progress, 0, 1, f"waiting for who prepares {self.name}")
        try:
            with cache_lock(folder, on_wait):
                if folder.is_dir():
                    return
                shutil.rmtree(part, ignore_errors=True)
                for old in folder.parent.glob(f"{self._prefix}-*"):
                    if old.is_dir():  # not the files of locks
                        shutil.rmtree(old, ignore_errors=True)
                part.mkdir()
                try:
                    for split, images in zip(("train", "test"), self.make(report), strict=True):
                        np.save(part / f"{split}-pixels.npy", images.pixels)
                        np.save(part / f"{split}-labels.npy", images.labels)
                    part.rename(folder)
                finally:
                    shutil.rmtree(part, ignore_errors=True)
        except OSError as error:
            raise make_cache_write_error(folder.parent, error) from error

    def open(self, *, train: bool) -> LabelledImages:
        """Map the arrays of one set into memory.

        Raises:
            UseCaseError: They were not prepared.
        """
        split = "train" if train else "test"
        try:
            pixels, labels = (
                np.load(self._folder / f"{split}-{part}.npy", mmap_mode="r")
                for part in ("pixels", "labels")
            )
        except (OSError, ValueError) as error:
            raise UseCaseError(
                f"{self.name} was not prepared on this machine: call the use case's prepare() "
                "once before dataset(), as tune and launch do"
            ) from error
        return LabelledImages(pixels, labels)

    @property
    def _prefix(self) -> str:
        return _hash(self.name)

    @property
    def _folder(self) -> Path:
        return cache_folder() / "images" / f"{self._prefix}-{_hash(f'{VERSION} {self.key}')}"


def _hash(text: str) -> str:
    return sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]
