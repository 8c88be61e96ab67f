"""Writing of a page: as a whole, or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from launch.system.durable_files import explain_os_error, replace_durably, write_durably
from planner.errors import UsageError


def write_page(path: Path, text: str, *, option: str = "--html") -> None:
    """Write a page in place of what the file held; until it is complete, that stays.

    Args:
        path: Of the file.
        text: What is in it.
        option: That named the file.

    Raises:
        UsageError: The file cannot be written.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with write_durably(new) as file:
            file.write(text.encode(errors="backslashreplace"))
        replace_durably(new, path)
    except OSError as error:
        raise UsageError(
            f"{option} {path}: {explain_os_error(error)}: name another file"
        ) from error
    finally:
        with suppress(OSError):
            new.unlink()
