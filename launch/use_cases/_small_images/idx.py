"""IDX files, in which MNIST comes: read and checked.

Big-endian numbers of 32 bits: 0x800 plus the number of dimensions, the length of each, then bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from launch.errors import UseCaseError
from launch.reports import PreparationReporter
from launch.use_cases._small_images.known_file import KnownFile, name_stamps
from launch.use_cases._small_images.labelled_images import ImageSet, LabelledImages

_UNSIGNED_BYTES = 0x800

_KNOWN = {
    "train-images-idx3-ubyte": (47_040_016, "6bbc9ace898e44ae57da46a324031adb"),
    "train-labels-idx1-ubyte": (60_008, "a25bea736e30d166cdddb491f175f624"),
    "t10k-images-idx3-ubyte": (7_840_016, "2646ac647ad5339dbf082846283269ea"),
    "t10k-labels-idx1-ubyte": (10_008, "27ae3e4e09519cfbb04c329615203637"),
}
MNIST_FILES = tuple(
    KnownFile(
        name=name,
        num_bytes=num_bytes,
        digest=f"md5:{digest}",
        other_names=(name.replace("-idx", ".idx"),),
    )
    for name, (num_bytes, digest) in _KNOWN.items()
)
"""Images and labels for training, then for testing; digests of the unpacked files."""


def find_mnist(folder: Path, files: Sequence[KnownFile] = MNIST_FILES) -> ImageSet:
    """Find MNIST in a folder; nothing is read yet.

    Args:
        folder: Where the four files are, plain or gzipped, here or in ``MNIST/raw`` below it, where
            torchvision puts them.
        files: As `MNIST_FILES`.

    Raises:
        UseCaseError: A file is missing.
    """
    raw = folder / "MNIST" / "raw"
    place = raw if raw.is_dir() else folder
    found = [(file, file.find(place)) for file in files]
    missing = [file.name for file, path in found if path is None]
    if missing:
        raise UseCaseError(
            f"data folder {place} has no {', '.join(missing)}: name the folder with the four IDX "
            "files of MNIST, plain or with .gz"
        )
    paths = [path for _, path in found if path is not None]

    def make(report: PreparationReporter) -> tuple[LabelledImages, LabelledImages]:
        arrays = []
        for number, (file, path) in enumerate(zip(files, paths, strict=True)):
            arrays.append(read_idx(file.read(path), str(path)))
            report.progress(number + 1, len(files), "reading MNIST")
        return _pair(arrays[0], arrays[1], place), _pair(arrays[2], arrays[3], place)

    return ImageSet(name=f"MNIST in {folder.resolve()}", key=name_stamps(paths), make=make)


def read_idx(content: bytes, where: str) -> NDArray[np.uint8]:
    """Read an array of unsigned bytes from the content of an IDX file.

    Raises:
        UseCaseError: It is none, or cut off.
    """
    (magic,) = struct.unpack_from(">I", content.ljust(4, b"\0"))
    dimensions = magic - _UNSIGNED_BYTES
    if not 0 < dimensions < 256:
        raise UseCaseError(
            f"{where} begins with {magic:#010x} and an IDX file of bytes with 0x000008 and the "
            "number of dimensions: name the files of MNIST"
        )
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise UseCaseError(f"{where} ends in its header: fetch it again")
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    pixels = np.frombuffer(content, np.uint8, offset=start)
    if pixels.size != int(np.prod(shape, dtype=object)):
        raise UseCaseError(
            f"{where} has {pixels.size} bytes after its header, which promises "
            f"{' x '.join(map(str, shape))}: fetch it again"
        )
    return pixels.reshape(shape)


def _pair(images: NDArray[np.uint8], labels: NDArray[np.uint8], place: Path) -> LabelledImages:
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise UseCaseError(
            f"{place} has images of shape {images.shape} and labels of shape {labels.shape}: "
            "each image needs a label"
        )
    return LabelledImages(images[..., None], labels)
