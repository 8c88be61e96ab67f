"""Releases of packages that must not be imported."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from launch.packages.install_command import install_command

MALICIOUS_RELEASES: Mapping[str, tuple[str, ...]] = {"lightning": ("2.6.2", "2.6.3")}
"""By package: they steal credentials as soon as they are imported. Source: advisory
GHSA-w37p-236h-pfx3 of Lightning AI, 2026-04-30. `pyproject.toml` excludes the same."""


def find_malicious_release(package: str) -> str | None:
    """Say that a malicious release of a package is installed, with the way out; imports nothing."""
    bad = MALICIOUS_RELEASES.get(package, ())
    try:
        installed = version(package) if bad else None
    except PackageNotFoundError:
        return None
    if installed not in bad:
        return None
    others = ",".join(f"!={one}" for one in bad)
    return (
        f"{package} {installed} is a malicious release that steals credentials, and is not "
        f"imported here: {install_command(package + others)}, and renew all credentials that "
        "this machine holds"
    )
