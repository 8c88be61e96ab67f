"""Which software does a measurement depend on?"""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version


def current_software() -> dict[str, str]:
    """Give the versions that decide whether two measurements can be compared.

    Read from the installed packages: importing torch to ask it takes seconds, and its own
    answer ends in a build tag (``+cpu``) that the packages do not have.
    """
    packages = {name: _installed_version(name) for name in ("torch", "ddlplan")}
    return {"python": platform.python_version()} | packages


def _installed_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def release_series(full_version: str) -> str:
    """Cut a version to major.minor: ``2.15.0+cpu`` gives ``2.15``."""
    return ".".join(full_version.split("+")[0].split(".")[:2])
