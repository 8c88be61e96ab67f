"""What does a file say of itself? Read from its docstring, without importing it."""

from __future__ import annotations

import ast
from pathlib import Path


def first_line(module: Path) -> str:
    """Return the first line of a module's docstring, empty where it has none."""
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]
