"""Writing of a page: as a whole, or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from launch.system.durable_files import explain_write_error, replace_durably, write_durably
from planner.errors import UsageError


def write_page(path: Path, text: str, *, option: str = "--html") -> None:
    """Write a page in place of what the file held; until it is complete, that stays.

    Raises:
        UsageError: The file cannot be written.
    """
    new = _beside(path)
    with _explained(path, option, new):
        with write_durably(new) as file:
            file.write(text.encode(errors="backslashreplace"))
        replace_durably(new, path)


def check_page(path: Path) -> None:
    """Check that a page can be written, before what it will show is measured.

    Raises:
        UsageError: It cannot.
    """
    new = _beside(path)
    with _explained(path, "--html", new):
        new.touch()
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))


def _beside(path: Path) -> Path:
    return path.parent / f".{path.name}.{os.getpid()}"


@contextmanager
def _explained(path: Path, option: str, new: Path) -> Iterator[None]:
    """Say what is wrong with a file, and leave nothing beside it."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{option} {path}: {explain_write_error(error, path)}: name another file"
        ) from error
    finally:
        with suppress(OSError):
            new.unlink()
