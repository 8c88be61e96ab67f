"""A use case whose data are ready, as `tune` and `launch` make them before a worker opens them."""

from __future__ import annotations

import sys
from pathlib import Path

from launch.use_cases import resolve
from launch.use_cases._base import UseCase


class _Warnings:
    """Hears how data are made ready; problems go to stderr."""

    def progress(self, done: int, total: int, what: str) -> None:
        """Say nothing."""

    def warning(self, message: str) -> None:
        """Pass it on."""
        print(f"warning: {message}", file=sys.stderr)


def load_prepared(use_case: str, data: Path | None = None) -> UseCase:
    """Load a use case and make its data ready.

    Raises:
        UseCaseError: There is no such use case, or its data cannot be made ready.
    """
    case = resolve(use_case).load(data)
    case.prepare(data, _Warnings())
    return case
