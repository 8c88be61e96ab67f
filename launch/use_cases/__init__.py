"""Use cases: one module each, found by file name; and one's own, found by module or file."""

from __future__ import annotations

from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from launch.summaries import first_line
from launch.use_cases import _places

if TYPE_CHECKING:
    from launch.use_cases._base import UseCase


def use_case_names() -> list[str]:
    """Return the name of every built-in use case, sorted, without importing any."""
    return sorted(m.name for m in iter_modules(__path__) if not m.name.startswith("_"))


def use_case_summaries() -> dict[str, str]:
    """Return the first line of each built-in use case's docstring, without importing any."""
    return {name: first_line(Path(__path__[0], f"{name}.py")) for name in use_case_names()}


def load_use_case(spec: str) -> UseCase:
    """Import a use case and hold it against the contract. Runs the user's code.

    Args:
        spec: A built-in name, ``package.module:object`` or ``path/to/file.py:object``, where
            the object is a class that can be made without arguments, or an instance.

    Raises:
        UseCaseError: There is no such use case, its import fails, or it has another shape.
    """
    from launch.use_cases._shape import as_use_case

    return as_use_case(_places.find(spec, use_case_names()).load(), spec)


def check_spec(spec: str) -> None:
    """Judge what can be judged of a use case without importing it.

    Raises:
        UseCaseError: No such built-in name, module or file, or no such object in the file.
    """
    _places.find(spec, use_case_names()).check()


def normalise_spec(spec: str) -> str:
    """Give the one spelling under which a use case is stored: file paths become absolute.

    Raises:
        UseCaseError: The text names neither a built-in use case nor an object somewhere.
    """
    return str(_places.find(spec, use_case_names()))
