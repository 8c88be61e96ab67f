"""Processes of a test: found by their folder of temporary files, whoever their parent is now."""

from __future__ import annotations

import contextlib
from pathlib import Path


def below(temporary: Path) -> set[int]:
    """Processes whose temporary folder is that or below it."""
    found = set()
    for one in Path("/proc").iterdir():
        if one.name.isdecimal():
            with contextlib.suppress(OSError):
                if f"\0TMPDIR={temporary}".encode() in b"\0" + (one / "environ").read_bytes():
                    found.add(int(one.name))
    return found
