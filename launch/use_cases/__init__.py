"""Use cases: one module each, found by file name; and a user's own, found by module or file."""

from __future__ import annotations

from pathlib import Path

from launch.system.found_by_file import read_summaries
from launch.use_cases._locations import (
    UseCaseLocation,
    make_workload,
    resolve,
    use_case_names,
)

__all__ = [
    "UseCaseLocation",
    "make_workload",
    "resolve",
    "use_case_names",
    "use_case_summaries",
]


def use_case_summaries() -> dict[str, str]:
    """Return the first line of each built-in use case's docstring, without importing any."""
    return read_summaries(Path(__file__).parent)
