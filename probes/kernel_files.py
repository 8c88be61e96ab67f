"""Small text files through which the kernel describes the machine.

They may be missing, unreadable or empty for many good reasons (another architecture, a container,
a plain user), so every reader here gives ``None`` for what it cannot read.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path("/")
"""Parent of ``/proc`` and ``/sys``; tests have recorded trees elsewhere."""


def read_text(path: Path) -> str | None:
    """Read the text of a file without the white space around it."""
    try:
        # a kernel file may also fail while it is read: a link's speed gives EINVAL when it is down
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def read_int(path: Path) -> int | None:
    """Read the whole number in a file."""
    return parse_int(read_text(path))


def parse_int(text: str | None) -> int | None:
    """Give the whole number that a text is."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def read_table(path: Path) -> dict[str, str]:
    """Read the entries of a file of lines ``name value`` or ``name: value``."""
    pairs = (line.split(None, 1) for line in (read_text(path) or "").splitlines())
    return {pair[0].rstrip(":"): pair[1].strip() for pair in pairs if len(pair) == 2}


def read_process_stat(directory: Path) -> list[str] | None:
    """Read what the kernel says of a process behind its name, proc_pid_stat(5): its state first.

    The name in brackets may hold spaces and brackets: what follows the last one is regular.
    """
    stat = read_text(directory / "stat")
    return stat.rpartition(")")[2].split() if stat else None


def unescape(text: str) -> str:
    """Give the path that stands in a list of mounts, where spaces and some others are octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def read_cpu_list(path: Path) -> tuple[int, ...] | None:
    """Give the numbers in a list of ranges, such as ``0-3,8``; ``None`` for an empty one."""
    return parse_cpu_list(read_text(path))


def parse_cpu_list(text: str | None) -> tuple[int, ...] | None:
    """Give the numbers in a list of ranges, such as ``0-3,8``; ``None`` for an empty one."""
    numbers: set[int] = set()
    for part in (text or "").split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            return None
        numbers.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(numbers)) or None
