"""Assets: the style sheets, the script and the icon of all pages, by their names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files

_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """A file that pages load from the server itself."""

    content: bytes
    content_type: str

    digest: str
    """Changes with the content, so that a browser may keep the rest for ever."""


def find_asset(name: str) -> Asset | None:
    """Give an asset; ``None`` where there is none of this name. No path is looked up."""
    return _ASSETS.get(name)


def asset_address(name: str) -> str:
    """Give the address of an asset, another one for other content."""
    return f"/static/{name}?v={_ASSETS[name].digest}"


def _read_all() -> Iterator[tuple[str, Asset]]:
    for package, folder in (("planner.service", "static"), ("planner.report", "figures")):
        for file in sorted(files(package).joinpath(folder).iterdir(), key=lambda file: file.name):
            kind = _TYPES.get(file.name.rpartition(".")[2])
            if kind is not None:
                content = file.read_bytes()
                digest = hashlib.sha256(content).hexdigest()[:12]
                yield file.name, Asset(content=content, content_type=kind, digest=digest)


_ASSETS = dict(_read_all())
