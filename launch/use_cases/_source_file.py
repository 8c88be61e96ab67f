"""Source file of a use case, read without running it."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from launch.errors import UseCaseError
from launch.system.found_by_file import parse_module
from launch.use_cases._imports import make_import_error


@dataclass(frozen=True, slots=True)
class SourceFile:
    """The syntax tree of a Python file."""

    tree: ast.Module

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read and parse a file.

        Raises:
            UseCaseError: It cannot be read, or is no Python.
        """
        try:
            if file.exists() and not (file.is_file() or file.is_dir()):
                raise UseCaseError(
                    f"use case file {file}: it is no regular file: name a Python file"
                )
            return cls(parse_module(file.read_bytes(), str(file)))
        except OSError as error:
            reason = error.strerror or str(error)
            raise UseCaseError(f"use case file {file}: {reason}: name a Python file") from error
        except (SyntaxError, ValueError, RecursionError) as error:
            raise make_import_error(file, error) from error

    def definitions(self) -> list[str]:
        """List what it certainly defines at its top level."""
        names: list[str] = []
        for node in self.tree.body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                names.append(node.name)
            elif isinstance(node, ast.Assign):
                names += [target.id for target in node.targets if isinstance(target, ast.Name)]
        return names

    def possible_names(self) -> set[str]:
        """Collect every name that it could define at its top level, ``*`` for unknown ones."""
        names: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                names.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.alias):
                names.add((node.asname or node.name).partition(".")[0])
        return names

    def find_use_cases(self) -> list[str]:
        """Find the classes that have a use case's methods."""
        return [
            node.name
            for node in self.tree.body
            if isinstance(node, ast.ClassDef)
            if {"model", "dataset"}
            <= {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        ]
