"""Writing of a page: as a whole, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from launch.system.durable_files import check_in_place, explain_write_error, write_in_place
from planner.errors import UsageError


def write_page(path: Path, text: str, *, option: str = "--html") -> None:
    """Write a page in place of what the file held; until it is complete, that stays.

    Raises:
        UsageError: The file cannot be written.
    """
    with _explained(path, option):
        write_in_place(path, text.encode(errors="backslashreplace"))


def check_page(path: Path) -> None:
    """Check that a page can be written, before what it will show is measured.

    Raises:
        UsageError: It cannot.
    """
    with _explained(path, "--html"):
        check_in_place(path)


@contextmanager
def _explained(path: Path, option: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{option} {path}: {explain_write_error(error, path)}: name another file"
        ) from error
