"""Tables of papers, with stored figures beside the published ones: one file for each paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from launch.system.found_by_file import list_names, load_only_class
from launch.system.name_suggestion import suggest
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
        raise UsageError(f"unknown paper {name!r}: {suggest(name, names)}")
    return load_only_class(f"{__name__}.{name}", Paper)()  # type: ignore[type-abstract]
