"""Use cases: one module each, found by file name; and a user's own, found by module or file."""

from __future__ import annotations

from pathlib import Path

from launch.errors import UseCaseError
from launch.system.found_by_file import read_constants, read_summaries
from launch.use_cases._locations import UseCaseLocation, make_workload, resolve, use_case_names
from launch.use_cases._settings import split_name

__all__ = [
    "UseCaseLocation",
    "check_has_data",
    "make_workload",
    "resolve",
    "use_case_names",
    "use_case_summaries",
]


def use_case_summaries() -> dict[str, str]:
    """Return the first line of each built-in use case's docstring, without importing any."""
    return read_summaries(Path(__file__).parent)


def check_has_data(name: str, data: Path | None) -> None:
    """Check that data are named for a built-in use case that has none, without importing it.

    Args:
        name: Of the use case; it may have settings behind it.
        data: What is named.

    Raises:
        UseCaseError: They are not, or what is behind the name is no setting.
    """
    name, _ = split_name(name)
    if data is None and name in use_case_names():
        constants = read_constants(Path(__file__).with_name(f"{name}.py"))
        if (without := constants.get("WITHOUT_DATA")) is not None:
            raise UseCaseError(str(without))
