"""Draft of a use case: its methods as code, and what could not be found out."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from planner.use_case_drafts.options import Option


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One method of the contract."""

    name: str
    arguments: str
    body: list[ast.stmt] = field(default_factory=list)
    todo: tuple[str, ...] = ()
    """What is to be filled in or looked at."""
    line: int | None = None
    """Where the script has it; ``None`` where it was not found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A use case as far as a script says it."""

    script: str
    """Name of the script's file."""
    source: str
    """Its text."""
    class_name: str
    name: str
    default_batch: int | None
    max_gradient_norm: float | None
    settings: tuple[Option, ...]
    """Options of the script that its parts depend on."""
    carried: tuple[ast.stmt, ...]
    """Imports, functions, classes and values of the script that the methods need."""
    methods: tuple[Method, ...]
    todo: tuple[str, ...]
    """What concerns no method alone."""
