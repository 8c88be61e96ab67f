"""Binary files of CIFAR-10: read and checked.

Each image is a byte for its class, then its red, green and blue values, 1024 each, by row.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from launch.errors import UseCaseError
from launch.reports import PreparationReporter
from launch.use_cases._small_images.known_file import KnownFile, name_stamps
from launch.use_cases._small_images.labelled_images import ImageSet, LabelledImages

SIDE, CHANNELS, NUM_CLASSES = 32, 3, 10
_IMAGE_BYTES = 1 + CHANNELS * SIDE * SIDE
_FILE_BYTES = 10_000 * _IMAGE_BYTES
FOLDER, ARCHIVE = "cifar-10-batches-bin", "cifar-10-binary.tar.gz"
_DIGESTS = {
    "data_batch_1.bin": "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
    "data_batch_2.bin": "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
    "data_batch_3.bin": "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
    "data_batch_4.bin": "aab85764eb3584312d3c7f65fd2fd016e36a258e",
    "data_batch_5.bin": "26e2849e66a845b7f1e4614ae70f4889ae604628",
    "test_batch.bin": "67eb016db431130d61cd03c7ad570b013799c88c",
}
CIFAR_FILES = tuple(
    KnownFile(name=name, num_bytes=_FILE_BYTES, digest=f"sha1:{digest}")
    for name, digest in _DIGESTS.items()
)
"""Those for training, then the one for testing."""


def find_cifar(place: Path, files: Sequence[KnownFile] = CIFAR_FILES) -> ImageSet:
    """Find CIFAR-10; nothing is read yet.

    Args:
        place: The archive ``cifar-10-binary.tar.gz``, a folder with it or with the ``.bin``
            files, here or in ``cifar-10-batches-bin`` below it.
        files: As `CIFAR_FILES`.

    Raises:
        UseCaseError: They are not there.
    """
    below = place / FOLDER
    folder = below if below.is_dir() else place
    found = [(file, file.find(folder)) for file in files]
    paths = [path for _, path in found if path is not None]
    archive = place if place.is_file() else place / ARCHIVE
    is_packed = len(paths) < len(files)
    if is_packed and not archive.is_file():
        missing = ", ".join(file.name for file, path in found if path is None)
        raise UseCaseError(
            f"data folder {folder} has no {missing}, and {place} no {ARCHIVE}: name a folder with "
            "the binary version of CIFAR-10"
        )

    def make(report: PreparationReporter) -> tuple[LabelledImages, LabelledImages]:
        report.progress(0, 1, "reading CIFAR-10")
        if is_packed:
            *training, testing = _read_archive(files, archive)
        else:
            *training, testing = (f.read(path) for f, path in zip(files, paths, strict=True))
        report.progress(1, 1, "reading CIFAR-10")
        where = str(archive if is_packed else folder)
        return decode(b"".join(training), where), decode(testing, where)

    stamps = name_stamps([archive] if is_packed else paths)
    return ImageSet(name=f"CIFAR-10 in {place.resolve()}", key=stamps, make=make)


def decode(content: bytes, where: str) -> LabelledImages:
    """Decode the content of binary files, one after the other.

    Raises:
        UseCaseError: It is cut off, or has a class that does not exist.
    """
    if len(content) % _IMAGE_BYTES:
        raise UseCaseError(
            f"{where} has {len(content)} bytes of images, no multiple of {_IMAGE_BYTES}: "
            "fetch it again"
        )
    rows = np.frombuffer(content, np.uint8).reshape(-1, _IMAGE_BYTES)
    if len(rows) and rows[:, 0].max() >= NUM_CLASSES:
        raise UseCaseError(
            f"{where} has an image of class {rows[:, 0].max()}, and classes are 0 to "
            f"{NUM_CLASSES - 1}: fetch it again"
        )
    planes = rows[:, 1:].reshape(-1, CHANNELS, SIDE, SIDE)
    return LabelledImages(np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), rows[:, 0])


def _read_archive(files: Sequence[KnownFile], archive: Path) -> list[bytes]:
    """Read the files out of the archive, into memory: nothing is unpacked to a path in it."""
    wanted = {file.name: file for file in files}
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(archive, "r:*") as opened:
            for member in opened:
                file = wanted.get(PurePosixPath(member.name).name)
                stream = opened.extractfile(member) if file and member.isfile() else None
                if file is not None and stream is not None:
                    content = stream.read(file.num_bytes + 1)
                    file.check(content, f"{member.name} in {archive}")
                    found[file.name] = content
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        # A tar error may go on with a line for each kind of packing.
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0].rstrip(":")
        raise UseCaseError(f"{archive} cannot be read: {reason}: fetch it again") from error
    if missing := [name for name in wanted if name not in found]:
        raise UseCaseError(f"{archive} has no {', '.join(missing)}: fetch {ARCHIVE} again")
    return [found[file.name] for file in files]
