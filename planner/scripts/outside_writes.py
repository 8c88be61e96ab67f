"""Places outside of its folder where a script may write: no private view covers them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

_MOST_NAMED = 3

_MOST_ENTRIES = 100_000
"""Of the folder that are looked at: data sets may have millions of files."""

_OPTION = re.compile(r"[\w.+-]+=(.+)", re.DOTALL)
_PROGRAMS = (".py", ".sh")


def warn_of_outside_writes(words: Sequence[str], folder: Path) -> str | None:
    """Say where trials may write outside of their view of a folder; ``None``: nowhere.

    Args:
        words: A filled command. Data that the script only reads cannot be told from its outputs.
        folder: The user's.
    """
    folder = folder.resolve()
    named = [("links", _find_links(folder)), ("words of the command", _find_words(words, folder))]
    places = [f"{what} {_name_some(found)}" for what, found in named if found]
    if not places:
        return None
    return (
        f"trials reach out of their view of this folder by {', '.join(places)}: what the script "
        "writes there is not protected"
    )


def _find_links(folder: Path) -> list[str]:
    """Find the links to folders outside that can be written."""
    found = []
    for entry in islice(_scan(str(folder)), _MOST_ENTRIES):
        if not entry.is_symlink():
            continue
        target = os.path.realpath(entry.path)
        if not _is_in(target, folder) and os.access(target, os.W_OK) and Path(target).is_dir():
            found.append(f"{os.path.relpath(entry.path, folder)} -> {target}")
    return sorted(found)


def _scan(folder: str) -> Iterator[os.DirEntry[str]]:
    """Give what is in a folder, level by level: links are more likely near its top."""
    folders = [folder]
    for one in folders:
        try:
            entries = list(os.scandir(one))
        except OSError:
            continue
        yield from entries
        folders += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]


def _find_words(words: Sequence[str], folder: Path) -> list[str]:
    """Find the words that name a place outside that can be written, but for programs."""
    found = []
    for word in words[1:]:
        option = _OPTION.fullmatch(word)
        named = os.path.normpath(folder / (option[1] if option else word))
        if _is_in(named, folder) or _is_in(os.path.realpath(named), folder):
            continue
        path = Path(named)
        while not os.path.lexists(path) and path != path.parent:
            path = path.parent  # the script may make the folders above it
        if not os.access(path, os.W_OK) or path.suffix in _PROGRAMS:
            continue
        if path.is_dir() or (path.is_file() and not os.access(path, os.X_OK)):  # no device
            found.append(word)
    return list(dict.fromkeys(found))


def _is_in(path: str, folder: Path) -> bool:
    return Path(path).is_relative_to(folder)


def _name_some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
