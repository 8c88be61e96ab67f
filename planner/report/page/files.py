"""Writing of a page: as a whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from planner.errors import UsageError


def write_page(path: Path, text: str) -> None:
    """Write a page in place of what the file held; until it is complete, that stays.

    Raises:
        UsageError: The file cannot be written.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError(None, "is a folder")
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"--html {path}: {reason.lower()}: name another file") from error
