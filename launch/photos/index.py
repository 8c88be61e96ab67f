"""Which photos of a folder are sound? Each file is decoded once; the answer is kept in the cache.

Nothing is ever written into the folder itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

from launch.cache import cache_folder, read_json, write_json
from launch.errors import UseCaseError
from launch.photos.decode import find_damage
from launch.photos.tree import Split, Stamp, class_of, has_split, list_files, split_photos
from launch.preparing import PrepareReport

VERSION = 1

_NAMED = 10
"""Skipped files that are named; the rest is counted."""

Finding = tuple[Stamp | None, str | None]
"""A file as it was when it was looked at, and what is wrong with it."""


def update_index(
    folder: Path, report: PrepareReport, *, cores: int, trusted: bool = False
) -> Split:
    """Look at every file that is new or changed, and keep what was found.

    Args:
        folder: One sub-folder of photos per class.
        report: Hears of files that are skipped, at each call.
        cores: Files decoded at once.
        trusted: Files were just written by ddlplan and need not be decoded.

    Raises:
        UseCaseError: The folder cannot be read, or has photos of fewer than two classes.
    """
    known = _read(folder)
    files = list_files(folder)
    given = has_split(files)
    found: dict[str, Finding] = {}
    unknown: list[str] = []
    for name, stamp in files.items():
        if class_of(name, given) is None:
            found[name] = stamp, "is outside of train and val" if given else "is in no class folder"
        elif stamp is None:
            found[name] = stamp, "is no file"
        elif name in known and known[name][0] == stamp:
            found[name] = known[name]
        elif trusted:
            found[name] = stamp, None
        else:
            unknown.append(name)
    for name, problem in zip(unknown, _look_at(folder, unknown, report, cores), strict=True):
        found[name] = files[name], problem
    split = _sound(folder, found)
    if found != known:
        write_json(_file(folder), {"version": VERSION, "folder": str(folder), "files": found})
    _warn(folder, found, report)
    return split


def read_index(folder: Path) -> Split:
    """Recall what `update_index` found, without a look at the folder.

    Raises:
        UseCaseError: It was never called for this folder.
    """
    return _sound(folder, _read_known(folder))


def read_stamps(folder: Path) -> dict[str, Stamp | None]:
    """Recall what each file was like when `update_index` looked at it, by relative name.

    Raises:
        UseCaseError: It was never called for this folder.
    """
    return {name: stamp for name, (stamp, _) in _read_known(folder).items()}


def _read_known(folder: Path) -> dict[str, Finding]:
    if found := _read(folder):
        return found
    raise UseCaseError(
        f"the photos in {folder} have not been checked on this machine: "
        "call the use case's prepare() once before dataset(), as tune and launch do"
    )


def _look_at(folder: Path, names: list[str], report: PrepareReport, cores: int) -> list[str | None]:
    problems: list[str | None] = []
    # Threads do: Pillow lets others run while it decodes.
    with ThreadPoolExecutor(cores) as pool:
        for problem in pool.map(find_damage, (folder / name for name in names)):
            problems.append(problem)
            report.progress(len(problems), len(names), "checking photos")
    return problems


def _sound(folder: Path, found: Mapping[str, Finding]) -> Split:
    names = sorted(name for name, (_, problem) in found.items() if problem is None)
    if not names:
        raise UseCaseError(
            f"data folder {folder} has no photos: name a folder with one sub-folder of photos "
            "per class"
        )
    split = split_photos(names, given=has_split(found))
    if len(split.classes) < 2:
        raise UseCaseError(
            f"data folder {folder} has photos of one class ({split.classes[0]}): "
            "put those of each class into a sub-folder, at least two"
        )
    return split


def _warn(folder: Path, found: Mapping[str, Finding], report: PrepareReport) -> None:
    skipped = [(name, problem) for name, (_, problem) in sorted(found.items()) if problem]
    for name, problem in skipped[:_NAMED]:
        report.warning(f"skipped {folder / name}: {problem}: replace or remove it")
    if len(skipped) > _NAMED:
        more = len(skipped) - _NAMED
        report.warning(f"skipped {more} more files of {folder}: replace or remove them")


def _file(folder: Path) -> Path:
    key = sha256(os.fsencode(folder.resolve())).hexdigest()[:32]
    return cache_folder() / "photos" / "index" / f"{key}.json"


def _read(folder: Path) -> dict[str, Finding]:
    document = read_json(_file(folder))
    try:
        if document["version"] != VERSION:
            return {}
        return {
            name: (tuple(stamp) if stamp else None, problem)
            for name, (stamp, problem) in document["files"].items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):  # no file, or not one of ours
        return {}
