"""Working folder of a measured script: a private view of the user's, removed afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from launch.errors import ScriptError
from launch.system.temporary_folder import (
    make_for_processes,
    make_of_same_name,
    remove_abandoned,
    remove_folders,
)

_MOST_COPIED_BYTES = 512 << 20
_TRY_LIMIT_S = 20.0

_MOST_TEMPORARY_BYTES = 107 - len("/pymp-12345678/listener-12345678")
"""Of the folder for temporary files: the path of a socket of multiprocessing, such as that of its
fork server, has 107 bytes at most (unix(7))."""

_SHORT_FOLDER = "/tmp"  # noqa: S108 - the folders in it are for this user alone


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingFolder:
    """Where a script runs."""

    path: Path
    """Its current folder."""

    temporary: Path
    """For its temporary files."""

    private: tuple[Path, ...]
    """What is removed afterwards, the folder for temporary files with it."""

    locks: tuple[int, ...] = ()
    """Descriptors of the files in them that say that somebody will remove them."""

    layers: tuple[str, str] | None = None
    """Folders of the overlay that covers ``path``; ``None`` where none does."""


@contextmanager
def open_working_folder(folder: Path, *, in_place: bool = False) -> Iterator[WorkingFolder]:
    """Open a private view of a folder: an overlay where the system has one, else a copy.

    Args:
        folder: The user's.
        in_place: Run in the folder itself: the user's word that what the script writes may stay.

    Raises:
        ScriptError: There is no overlay here, and the folder is too large for a copy; or it holds
            the folder of temporary files, whose view would be in itself; or nothing can be written
            there.
    """
    folder = folder.resolve()
    with _refusing_unwritable():
        remove_abandoned(Path(tempfile.gettempdir()))
        private, locks = make_for_processes()
    temporary, layers = private / "tmp", (private / "upper", private / "work")
    try:
        with _refusing_unwritable():
            if len(os.fsencode(temporary)) > _MOST_TEMPORARY_BYTES:
                remove_abandoned(Path(_SHORT_FOLDER))
                temporary, more = make_of_same_name(private, Path(_SHORT_FOLDER))
                locks += more
            for one in (temporary, *layers):
                one.mkdir(exist_ok=True)
        both = (private, temporary)
        made = partial(WorkingFolder, temporary=temporary, private=both, locks=locks)
        if in_place:
            yield made(path=folder)
            return
        if private.is_relative_to(folder):
            raise ScriptError(
                f"folder {folder} holds that of temporary files, {private.parent}: set TMPDIR to a "
                "folder outside of it, or pass --in-place where the script may write"
            )
        if _can_cover(folder, layers):
            yield made(path=folder, layers=(str(layers[0]), str(layers[1])))
            return
        if _size_up_to(folder, _MOST_COPIED_BYTES) > _MOST_COPIED_BYTES:
            raise ScriptError(
                f"folder {folder} has no private view here (no overlay file system) and more "
                f"than {_MOST_COPIED_BYTES >> 20} MiB to copy: pass --in-place where the script "
                "may write"
            )
        copy = private / "copy"
        try:
            shutil.copytree(folder, copy, symlinks=True, ignore=_find_special)
        except OSError as error:  # of many files, shutil.Error says all
            raise ScriptError(
                f"folder {folder} cannot be copied for the script ({_first_of(error)}): pass "
                "--in-place where the script may write"
            ) from error
        yield made(path=copy)
    finally:
        remove_folders((private, temporary), locks)


@contextmanager
def _refusing_unwritable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        most_bytes = _MOST_TEMPORARY_BYTES - len("/ddlplan-script-12345678/tmp")
        raise ScriptError(
            f"no folder for the script's temporary files can be made ({error}): set TMPDIR to one "
            f"that can be written, whose path has at most {most_bytes} bytes"
        ) from error


def _find_special(folder: str, names: list[str]) -> list[str]:
    """Name what is no file, folder or link, such as a socket: there is nothing to copy of it."""
    kinds = ((name, Path(folder, name)) for name in names)
    return [n for n, p in kinds if not (p.is_symlink() or p.is_dir() or p.is_file())]


def _first_of(error: OSError) -> str:
    if isinstance(error, shutil.Error) and isinstance(error.args[0], list):
        source, _, why = error.args[0][0]
        return f"{source}: {why}"
    return str(error)


def _can_cover(folder: Path, layers: tuple[Path, Path]) -> bool:
    program = Path(__file__).with_name("private_view.py")
    command = [sys.executable, "-I", str(program), str(folder), *map(str, layers)]
    try:
        tried = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TRY_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0


def _size_up_to(folder: Path, most_bytes: int) -> int:
    size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                size += Path(parent, name).lstat().st_size
        if size > most_bytes:
            break
    return size
