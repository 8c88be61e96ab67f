"""Versions of the software that a measurement depends on."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version


def current_software() -> dict[str, str]:
    """Give the versions that must agree for two measurements to be comparable.

    Read from the installed packages: importing torch takes seconds, and its own version ends in
    a build tag (``+cpu``) that the package's does not have.
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
