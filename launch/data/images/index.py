"""Index of the valid photos of a folder: each file is decoded once, the result is cached.

Nothing is ever written into the folder itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from launch.data.images.image_file import find_damage
from launch.data.images.tree import (
    DatasetSplit,
    FileStamp,
    class_of,
    has_split,
    list_files,
    split_photos,
)
from launch.errors import UseCaseError
from launch.reports import PreparationReporter
from launch.system.cache import cache_folder, read_json, write_json

VERSION = 1

_MAX_NAMED = 10
"""Skipped files that are named; the rest is counted."""

CheckedFile = tuple[FileStamp | None, str | None]
"""Stamp of a file when it was checked, and what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Index:
    version: int
    folder: str
    files: Mapping[str, CheckedFile]
    """By relative name."""


def update_index(
    folder: Path, report: PreparationReporter, *, cores: int, trusted: bool = False
) -> DatasetSplit:
    """Check every file that is new or changed, and store the result.

    Args:
        folder: One sub-folder of photos per class.
        report: Receives the files that are skipped, at each call.
        cores: Files decoded at once.
        trusted: Files were just written by ddlplan and need not be decoded.

    Raises:
        UseCaseError: The folder cannot be read, or has photos of fewer than two classes.
    """
    known = _read(folder)
    files = list_files(folder)
    is_presplit = has_split(files)
    found: dict[str, CheckedFile] = {}
    unknown: list[str] = []
    for name, stamp in files.items():
        if class_of(name, is_presplit) is None:
            found[name] = (
                stamp,
                "is outside of train and val" if is_presplit else "is in no class folder",
            )
        elif stamp is None:
            found[name] = stamp, "is no file"
        elif name in known and known[name][0] == stamp:
            found[name] = known[name]
        elif trusted:
            found[name] = stamp, None
        else:
            unknown.append(name)
    for name, problem in zip(unknown, _check_files(folder, unknown, report, cores), strict=True):
        found[name] = files[name], problem
    split = _make_split(folder, found)
    if found != known:
        write_json(_file(folder), _Index(version=VERSION, folder=str(folder), files=found))
    _warn(folder, found, report)
    return split


def read_index(folder: Path) -> DatasetSplit:
    """Read what `update_index` found, without reading the folder.

    Raises:
        UseCaseError: It was never called for this folder.
    """
    return _make_split(folder, _read_known(folder))


def read_stamps(folder: Path) -> dict[str, FileStamp | None]:
    """Read the stamp that each file had when `update_index` checked it, by relative name.

    Raises:
        UseCaseError: It was never called for this folder.
    """
    return {name: stamp for name, (stamp, _) in _read_known(folder).items()}


def _read_known(folder: Path) -> Mapping[str, CheckedFile]:
    if found := _read(folder):
        return found
    raise UseCaseError(
        f"the photos in {folder} have not been checked on this machine: "
        "call the use case's prepare() once before dataset(), as tune and launch do"
    )


def _check_files(
    folder: Path, names: list[str], report: PreparationReporter, cores: int
) -> list[str | None]:
    problems: list[str | None] = []
    # Threads do: Pillow lets others run while it decodes.
    with ThreadPoolExecutor(cores) as pool:
        for problem in pool.map(find_damage, (folder / name for name in names)):
            problems.append(problem)
            report.progress(len(problems), len(names), "checking photos")
    return problems


def _make_split(folder: Path, found: Mapping[str, CheckedFile]) -> DatasetSplit:
    names = sorted(name for name, (_, problem) in found.items() if problem is None)
    if not names:
        raise UseCaseError(
            f"data folder {folder} has no photos: name a folder with one sub-folder of photos "
            "per class"
        )
    split = split_photos(names, is_presplit=has_split(found))
    if len(split.classes) < 2:
        raise UseCaseError(
            f"data folder {folder} has photos of one class ({split.classes[0]}): "
            "put those of each class into a sub-folder, at least two"
        )
    return split


def _warn(folder: Path, found: Mapping[str, CheckedFile], report: PreparationReporter) -> None:
    skipped = [(name, problem) for name, (_, problem) in sorted(found.items()) if problem]
    for name, problem in skipped[:_MAX_NAMED]:
        report.warning(f"skipped {folder / name}: {problem}: replace or remove it")
    if len(skipped) > _MAX_NAMED:
        more = len(skipped) - _MAX_NAMED
        report.warning(f"skipped {more} more files of {folder}: replace or remove them")


def _file(folder: Path) -> Path:
    key = sha256(os.fsencode(folder.resolve())).hexdigest()[:32]
    return cache_folder() / "photos" / "index" / f"{key}.json"


def _read(folder: Path) -> Mapping[str, CheckedFile]:
    index = read_json(_file(folder), _Index)
    return index.files if index is not None and index.version == VERSION else {}
