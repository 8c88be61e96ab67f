"""Versions of the software that a measurement depends on."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version


def current_software() -> dict[str, str]:
    """Give the versions that must agree for two measurements to be comparable.

    Read from the installed packages: importing torch takes seconds, and its own version ends in
    a build tag (``+cpu``) that the package's does not have.
    """
    packages = {name: find_version(name) or "unknown" for name in ("torch", "ddlplan")}
    return {"python": platform.python_version()} | packages


def find_version(package: str) -> str | None:
    """Give the version of a package, ``None`` where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def release_series(full_version: str) -> str:
    """Cut a version to major.minor: ``2.15.0+cpu`` gives ``2.15``."""
    return ".".join(full_version.split("+")[0].split(".")[:2])


def measurement_key(facts: Sequence[object], software: Mapping[str, str]) -> str:
    """Name everything that makes measurements comparable, the same in every process.

    Args:
        facts: All but the software, as values that JSON can hold.
        software: Its versions. A bug-fix release of Python makes no step faster.
    """
    named = dict(software)
    if "python" in named:
        named["python"] = release_series(named["python"])
    text = json.dumps([*facts, named], sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
