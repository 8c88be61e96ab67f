"""Where does the text after ``--use-case`` point to?"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Protocol

from launch.errors import UseCaseError
from launch.use_cases import _imports


class Place(Protocol):
    """Where a use case lives; its text is the spelling to store."""

    def check(self) -> None:
        """Judge what can be judged without an import, or raise `UseCaseError`."""

    def load(self) -> object:
        """Import the object, or raise `UseCaseError`."""


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """One of the files in this folder."""

    name: str

    def __str__(self) -> str:
        return self.name

    def check(self) -> None:
        """Nothing is left to judge: the name is known."""

    def load(self) -> object:
        """Import the file and return the one use case that it defines."""
        from launch.use_cases._base import UseCase

        module = _imports.import_by_name(f"{__package__}.{self.name}")
        own = [
            member
            for member in vars(module).values()
            if isinstance(member, type)
            and issubclass(member, UseCase)
            and member.__module__ == module.__name__
        ]
        assert len(own) == 1, f"{module.__name__} must define exactly one use case"
        return own[0]


@dataclass(frozen=True, slots=True)
class InModule:
    """An object in a module that can be imported from here."""

    module: str
    attribute: str

    def __str__(self) -> str:
        return f"{self.module}:{self.attribute}"

    def check(self) -> None:
        """See whether its outermost package exists; to look deeper would import it."""
        package = self.module.partition(".")[0]
        _imports.put_first(Path.cwd())
        try:
            found = package in sys.modules or find_spec(package) is not None
        except (ImportError, ValueError):
            found = False
        if not found:
            raise UseCaseError(
                f"use case {self}: no module {package!r} is installed or in {Path.cwd()}: "
                "install it, change the folder, or write path/to/file.py:object"
            )

    def load(self) -> object:
        """Import the module as ``python -m`` would, the current folder first."""
        self.check()
        return _get(_imports.import_by_name(self.module), self.attribute, str(self))


@dataclass(frozen=True, slots=True)
class InFile:
    """An object in a Python file, which is imported as if its folder were the current one."""

    file: Path
    attribute: str

    def __str__(self) -> str:
        return f"{self.file}:{self.attribute}"

    def check(self) -> None:
        """See whether the file can be parsed and mentions the object."""
        names = _names_in(self.file)
        first = self.attribute.partition(".")[0]
        if "*" not in names and first not in names:
            raise _missing(str(self), first, [n for n in names if not n.startswith("_")])

    def load(self) -> object:
        """Import the file, with its neighbours within reach."""
        self.check()
        return _get(_imports.import_file(self.file), self.attribute, str(self))


def find(spec: str, built_in: Sequence[str]) -> Place:
    """Tell a built-in name, a module and a file apart.

    Raises:
        UseCaseError: The text is none of them.
    """
    place, colon, attribute = spec.rpartition(":")
    if not colon:
        if spec in built_in:
            return BuiltIn(spec)
        raise _unknown(spec, built_in)
    if not place or not all(part.isidentifier() for part in attribute.split(".")):
        raise UseCaseError(
            f"use case {spec!r}: write package.module:object or path/to/file.py:object"
        )
    if _looks_like_file(place):
        return InFile(Path(place).expanduser().resolve(), attribute)
    if not all(part.isidentifier() for part in place.split(".")):
        raise UseCaseError(f"use case {spec!r}: {place!r} is no module name and no .py file")
    return InModule(place, attribute)


def _unknown(spec: str, built_in: Sequence[str]) -> UseCaseError:
    if _looks_like_file(spec) or "." in spec:
        return UseCaseError(f"use case {spec!r} names no object: write {spec}:MyCase")
    close = get_close_matches(spec.lower(), built_in, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return UseCaseError(
        f"unknown use case {spec!r}: {hint}choose one of {', '.join(built_in)}, "
        "or write package.module:object or path/to/file.py:object"
    )


def _looks_like_file(place: str) -> bool:
    return place.endswith(".py") or os.sep in place


def _names_in(file: Path) -> set[str]:
    """Collect every name that the file could define at its top level, ``*`` for an unknown lot."""
    try:
        tree = ast.parse(file.read_bytes(), filename=str(file))
    except OSError as error:
        reason = error.strerror or str(error)
        raise UseCaseError(f"use case file {file}: {reason}: name a Python file") from error
    except (SyntaxError, ValueError) as error:
        raise _imports.import_failed(file, error) from error
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
    return names


def _get(module: ModuleType, attribute: str, spec: str) -> object:
    found: object = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise _missing(spec, part, [n for n in dir(found) if not n.startswith("_")])
        found = getattr(found, part)
    return found


def _missing(spec: str, name: str, names: Sequence[str]) -> UseCaseError:
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}?" if close else "name a class or an instance that it defines"
    return UseCaseError(f"use case {spec}: there is no {name!r}: {hint}")
