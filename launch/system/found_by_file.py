"""Things that are one module each of a folder, found by file name."""

from __future__ import annotations

import ast
import contextlib
import threading
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_parsing = threading.Lock()
"""Threads share the depth that CPython 3.11 counts while it builds a tree, and one of two that do
so at once fails with ``SystemError``: https://github.com/python/cpython/issues/106905."""


def parse_module(source: bytes, name: str = "<unknown>") -> ast.Module:
    """Parse the source of a module, in one thread at a time.

    Raises:
        SyntaxError: It is no Python.
        ValueError: It has null bytes.
    """
    with _parsing:
        return ast.parse(source, filename=name)


def list_names(folder: Path) -> list[str]:
    """List the modules of a folder, sorted, without importing any; ``_private`` ones are none."""
    return sorted(file.stem for file in folder.glob("[!_]*.py"))


def read_summaries(folder: Path) -> dict[str, str]:
    """Read the first line of each module's docstring, without importing any; empty without one."""
    trees = {
        name: parse_module((folder / f"{name}.py").read_bytes()) for name in list_names(folder)
    }
    return {name: (ast.get_docstring(trees[name]) or "").partition("\n")[0] for name in trees}


def read_constants(file: Path) -> dict[str, Any]:
    """Read the constants at the top of a module, those that are literals, without importing it."""
    found = {}
    for line in parse_module(file.read_bytes()).body:
        match line:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name.isupper():
                with contextlib.suppress(ValueError):
                    found[name] = ast.literal_eval(value)
    return found


def load_only_class(module_name: str, base: type[T]) -> type[T]:
    """Import a module and return the one class of a base that it defines."""
    module = import_module(module_name)
    own = [
        member
        for member in vars(module).values()
        if isinstance(member, type)
        and issubclass(member, base)
        and member.__module__ == module_name
    ]
    assert len(own) == 1, f"{module_name} must define exactly one {base.__name__}"
    return own[0]
