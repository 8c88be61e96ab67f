"""The house: imports point one way, and heavy libraries stay where they were promised to be."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = ("probes", "launch", "planner")
"""From the ground up: a floor imports from itself and from those before it."""

HOMES = {
    "typer": "planner/cli/",
    "mpi4py": (
        "launch/rank.py",
        "launch/exchange/",
        "launch/mpi/roll_call.py",
        "planner/together/rank.py",
    ),
    "sqlalchemy": "planner/store/",
}


def modules(floor: str) -> list[Path]:
    found = sorted((ROOT / floor).rglob("*.py"))
    assert found
    return found


def imported(module: Path) -> Iterator[tuple[str, int]]:
    """Every package that a file imports, wherever in the file, with the line."""
    return imported_within(ast.parse(module.read_text(encoding="utf-8")))


def imported_when_run(module: Path) -> Iterator[tuple[str, int]]:
    """The same without what only the check of types imports."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if not is_for_types(node)]
    return imported_within(tree)


def is_for_types(node: ast.stmt) -> bool:
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
    return False


def imported_within(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((alias.name.partition(".")[0], node.lineno) for alias in names)
            case ast.ImportFrom(module=str(name), level=0):
                yield name.partition(".")[0], node.lineno
            case ast.ImportFrom():
                yield "a relative name", node.lineno


@pytest.mark.parametrize("floor", FLOORS)
def test_no_floor_imports_from_one_above(floor):
    above = {*FLOORS[FLOORS.index(floor) + 1 :], "a relative name", "tests", "bench"}
    wrong = [
        f"{module.relative_to(ROOT)}:{line}: {package}"
        for module in modules(floor)
        for package, line in imported(module)
        if package in above
    ]
    assert wrong == []


@pytest.mark.parametrize(("package", "home"), HOMES.items())
def test_library_is_imported_only_where_it_was_promised(package, home):
    users = {
        str(module.relative_to(ROOT))
        for floor in FLOORS
        for module in modules(floor)
        if package in {name for name, _ in imported_when_run(module)}
    }
    assert users, f"nothing imports {package}"
    assert {user for user in users if not user.startswith(home)} == set()
