"""Peers: other ways to train, one module each, found by file name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from launch.system.found_by_file import list_names, load_only_class
from launch.system.name_suggestion import suggest
from planner.errors import UsageError

if TYPE_CHECKING:
    from planner.peers._base import Peer

_FOLDER = Path(__file__).parent


def peer_names() -> list[str]:
    """Return the name of every peer, sorted, without importing any."""
    return list_names(_FOLDER)


def load_peer(name: str) -> Peer:
    """Return the peer of that name; its library is not imported by this.

    Raises:
        UsageError: No file of that name is in this folder.
    """
    from planner.peers._base import Peer

    names = peer_names()
    if name not in names:
        raise UsageError(f"unknown peer {name!r}: {suggest(name, names)}")
    return load_only_class(f"{__name__}.{name}", Peer)(name)  # type: ignore[type-abstract]
