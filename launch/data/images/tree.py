"""Files of a folder of photos, with their classes and splits.

``DIR/<class>/*`` is the usual form; a tenth of it is used for validation. Where there are
``DIR/train/<class>/*`` and ``DIR/val/<class>/*`` (or ``validation``), that split is used. Files may
lie in folders below their class, links are followed, and names that begin with a dot are ignored.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from launch.errors import UseCaseError

FileStamp = tuple[int, int]
"""Size in bytes and time of the last change in ns: equal for files that did not change."""

_VALIDATION_FOLDERS = ("val", "validation")
_VALIDATION_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class DatasetSplit:
    """The classes of a folder and its valid photos, each with the number of its class."""

    classes: tuple[str, ...]
    train: tuple[tuple[str, int], ...]
    validation: tuple[tuple[str, int], ...]


def list_files(folder: Path) -> dict[str, FileStamp | None]:
    """List all files below a folder by relative name, sorted; what cannot be read has no stamp.

    Raises:
        UseCaseError: There is no such folder, or it may not be read.
    """
    try:
        return dict(sorted(_walk(folder, "", frozenset())))
    except OSError as error:
        reason = error.strerror or str(error)
        raise UseCaseError(
            f"data folder {folder}: {reason}: name a folder with one sub-folder of photos per class"
        ) from error


def split_photos(names: Iterable[str], *, is_presplit: bool) -> DatasetSplit:
    """Assign each photo its class and its split, by its relative name alone.

    So a photo stays where it is when others are added: the split is by a hash of the name. Only
    where that leaves one side empty the photo with the nearest hash changes sides.

    Args:
        names: Photos, sorted.
        is_presplit: Use the split that the folder comes with.
    """
    photos = [(n, kind) for n in names if (kind := class_of(n, is_presplit)) is not None]
    classes = tuple(sorted({kind for _, kind in photos}))
    validation = {
        n for n, _ in photos if is_presplit and n.partition("/")[0] in _VALIDATION_FOLDERS
    }
    if not 0 < len(validation) < len(photos):
        validation = _choose_validation([name for name, _ in photos])
    numbered = [(name, classes.index(kind)) for name, kind in photos]
    return DatasetSplit(
        classes,
        tuple(photo for photo in numbered if photo[0] not in validation),
        tuple(photo for photo in numbered if photo[0] in validation),
    )


def has_split(names: Iterable[str]) -> bool:
    """Whether the photos come with a split of their own."""
    tops = {name.partition("/")[0] for name in names if name.count("/") >= 2}
    return "train" in tops and not tops.isdisjoint(_VALIDATION_FOLDERS)


def class_of(name: str, is_presplit: bool) -> str | None:
    """Find the class of a relative name, ``None`` where the file is in no class folder."""
    parts = name.split("/")
    if not is_presplit:
        return parts[0] if len(parts) > 1 else None
    return parts[1] if len(parts) > 2 and parts[0] in ("train", *_VALIDATION_FOLDERS) else None


def _walk(
    folder: Path, above: str, seen: frozenset[FileStamp]
) -> Iterator[tuple[str, FileStamp | None]]:
    about = folder.stat()
    if (here := (about.st_dev, about.st_ino)) in seen:  # a link to a folder above
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            name = above + entry.name
            if entry.is_dir():
                yield from _walk(Path(entry.path), f"{name}/", seen | {here})
            elif entry.is_file():
                stat = entry.stat()
                yield name, (stat.st_size, stat.st_mtime_ns)
            else:  # a link to nothing, a pipe, a socket
                yield name, None


def _choose_validation(names: list[str]) -> set[str]:
    places = sorted((_hash_to_unit(name), name) for name in names)
    count = sum(place < _VALIDATION_SHARE for place, _ in places)
    count = min(max(count, 1), len(places) - 1)
    return {name for _, name in places[:count]}


def _hash_to_unit(name: str) -> float:
    """Hash a name to a number from 0 to 1."""
    digest = sha256(name.encode(errors="surrogateescape")).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
