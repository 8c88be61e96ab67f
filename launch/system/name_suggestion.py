"""Remedy for a name that does not exist: the one that was probably meant, and all there are."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches


def suggest(name: str, names: Sequence[str]) -> str:
    """Name the most similar name, where one is similar, and all there are to choose from."""
    close = get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{hint}choose one of {', '.join(names)}"
