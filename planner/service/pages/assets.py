"""Assets: the style sheets, the script and the icon of all pages, by their names."""

from __future__ import annotations

from dataclasses import dataclass

ASSETS: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """A file that pages load from the server itself."""

    content: bytes
    content_type: str

    digest: str
    """Changes with the content, so that a browser may keep the rest for ever."""


def find_asset(name: str) -> Asset | None:
    """Give an asset; ``None`` where there is none of this name. No path is looked up."""
    return None
