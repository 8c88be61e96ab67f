"""Tables of papers, with stored figures beside the published ones: one file for each paper."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from launch.system.found_by_file import list_names, load_only_class
from planner.errors import UsageError

if TYPE_CHECKING:
    from planner.paper_tables._base import Paper

_FOLDER = Path(__file__).parent


def paper_names() -> list[str]:
    """Return the name of every paper, sorted, without importing any."""
    return list_names(_FOLDER)


def load_paper(name: str) -> Paper:
    """Return the paper of that name.

    Raises:
        UsageError: No file of that name is in this folder.
    """
    from planner.paper_tables._base import Paper

    names = paper_names()
    if name not in names:
        close = get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise UsageError(f"unknown paper {name!r}: {hint}choose one of {', '.join(names)}")
    return load_only_class(f"{__name__}.{name}", Paper)()  # type: ignore[type-abstract]
