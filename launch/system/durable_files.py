"""Durable files: those of the user alone that are on the disk, and errors that name the file.

A new name is on the disk only once the folder that holds it is synced: fsync(2) of a file "does not
necessarily ensure that the entry in the directory containing the file has also reached disk".
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def write_durably(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that only the user can read; its content is on the disk after the block.

    Its name is when `sync_folder` was called for its folder.
    """
    with naming_file(path), create_private(path) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def replace_durably(path: Path, new: Path) -> Iterator[None]:
    """Replace a file by a new one, which the block writes durably in the same folder.

    Where the block fails, the file stays and nothing of the new one does.
    """
    try:
        new.unlink(missing_ok=True)  # what a process that was killed has left
        yield
        new.replace(path)
        sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):
            new.unlink()


def write_in_place(path: Path, content: bytes) -> None:
    """Write a file of the user alone in place of what was there, which stays until it is whole."""
    if _is_no_file(path):
        path.write_bytes(content)
        return
    new = _beside(path)
    with replace_durably(path, new), write_durably(new) as file:
        file.write(content)


def check_in_place(path: Path) -> None:
    """Check that `write_in_place` can write a file; nothing is left of that.

    Raises:
        OSError: It cannot.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not _is_no_file(path):
        new = _beside(path)
        new.touch()
        new.unlink()
    elif not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _is_no_file(path: Path) -> bool:
    """Whether there is a pipe, a device or an open file, which is written to, not replaced.

    ``/dev/stdout`` leads to ``/proc/self/fd/1``, and that to a file where stdout is redirected.
    """
    is_open = path.is_symlink() and any(
        place.is_relative_to("/proc") for place in (path.parent.resolve(), path.readlink())
    )
    return path.exists() and (is_open or not path.is_file())


def _beside(path: Path) -> Path:
    return path.parent / f".{path.name}.{os.getpid()}"


def create_private(path: Path) -> BinaryIO:
    """Create a file that only the user can read."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def write_private(path: Path, content: bytes) -> None:
    """Write a file; one that is not there yet can then be read by the user alone."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with naming_file(path), os.fdopen(descriptor, "wb") as file:
        file.write(content)


def make_folders(path: Path, *, mode: int = 0o777) -> None:
    """Make a folder with those above it, so that their names are on the disk.

    Args:
        path: Of the folder; it may be there.
        mode: Permissions of the folder itself where it is made.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(mode=mode, parents=True, exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent)


def check_folder(path: Path) -> None:
    """Check that a folder is there, or can be made, and that it takes files; nothing is made.

    Raises:
        OSError: It is not, or it does not.
    """
    for place in (path, *path.parents):
        try:
            mode = place.stat().st_mode
        except FileNotFoundError:
            if place.is_symlink():  # to what is not there: nothing can be made by its name
                raise
            continue
        if not stat.S_ISDIR(mode):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        if not os.access(place, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return


def sync_folder(path: Path) -> None:
    """Write to the disk which names a folder holds."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems cannot
            raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Give errors of writing the name of the file: the kernel knows its number alone."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def explain_os_error(error: OSError, *, named: Path | None = None) -> str:
    """Explain an error of the operating system, with the file where that is known.

    Args:
        error: The error.
        named: File that is named beside it: it is not named again.
    """
    known = None if named is None else str(named)
    where = "" if error.filename in (None, known) else f"{error.filename}: "
    return where + (error.strerror or str(error)).lower()


def explain_absence(path: Path) -> str | None:
    """Explain why nothing can be found at a path; ``None`` where something is."""
    try:
        path.stat()
    except (FileNotFoundError, ValueError):
        return "no such file or folder"
    except OSError as error:  # as of a folder that is another user's, where Path.exists raises
        return explain_os_error(error, named=path)
    return None


def explain_write_error(error: OSError, path: Path) -> str:
    """Explain why a file could not be written, without the file beside it that was tried."""
    if isinstance(error, FileNotFoundError):
        return f"there is no folder {path.parent}"
    return (error.strerror or str(error)).lower()
