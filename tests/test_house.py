"""The house: imports point one way, and heavy libraries stay where they were promised to be."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = ("probes", "launch", "planner")
"""From the ground up: a floor imports from itself and from those before it."""

LARGEST_ROOT = 7
LARGEST_FOLDER = 16
"""Modules: a folder that needs more is two things."""

DOORS = {"probes/node.py", "planner/__main__.py"}
"""Modules of a root that put folders together. All others there are what folders import."""

HOMES = {
    "typer": "planner/cli/",
    "mpi4py": (
        "launch/rank/rank.py",
        "launch/gradient_sync/allreduce/",
        "launch/mpi/rank_names.py",
        "planner/cluster_tuning/rank.py",
    ),
    "sqlalchemy": "planner/store/",
    "starlette": "planner/service/",
    "uvicorn": "planner/service/",
    "msgspec": "probes/codec.py",
}

BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""Attributes of syntax that hold statements, or what holds statements."""


@dataclass(frozen=True, slots=True)
class Source:
    """What the tests ask of a file, which nobody changes. Its tree, far larger, is not kept."""

    packages: list[tuple[str, int]]
    """Every package that the file imports, wherever in it, with the line."""

    packages_when_run: set[str]
    """The same without what only the check of types imports."""

    names: list[str]
    """Full names that the file imports, of modules or of things in them."""

    classes: list[str]
    """Classes that are in no other class and in no function."""

    docstring: str | None

    first_sentences: list[tuple[str, str]]
    """First sentence of each docstring, with the name of what it describes."""


@cache
def modules(floor: str) -> tuple[Path, ...]:
    found = sorted((ROOT / floor).rglob("*.py"))
    assert found
    return tuple(found)


@cache
def source(module: Path) -> Source:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    when_run = statements_in(node for node in tree.body if not is_for_types(node))
    statements = when_run + statements_in(node for node in tree.body if is_for_types(node))
    return Source(
        packages=[*packages_imported(statements)],
        packages_when_run={package for package, _ in packages_imported(when_run)},
        names=[*names_imported(statements)],
        classes=[node.name for node in tree.body if isinstance(node, ast.ClassDef)],
        docstring=ast.get_docstring(tree),
        first_sentences=[*first_sentences(tree, statements, module.name)],
    )


def statements_in(block: Iterable[ast.AST]) -> list[ast.stmt]:
    """Every statement, however deep. Most nodes are in expressions, which hold none."""
    nodes = [*block]
    for node in nodes:  # and those that come in the meantime
        for inner in BLOCKS:
            nodes += getattr(node, inner, ())
    return [node for node in nodes if isinstance(node, ast.stmt)]


def is_for_types(node: ast.stmt) -> bool:
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
    return False


def packages_imported(nodes: Iterable[ast.stmt]) -> Iterator[tuple[str, int]]:
    for node in nodes:
        match node:
            case ast.Import(names=names):
                yield from ((alias.name.partition(".")[0], node.lineno) for alias in names)
            case ast.ImportFrom(module=str(name), level=0):
                yield name.partition(".")[0], node.lineno
            case ast.ImportFrom():
                yield "a relative name", node.lineno


def names_imported(nodes: Iterable[ast.stmt]) -> Iterator[str]:
    for node in nodes:
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(package), names=names):
                yield from (f"{package}.{alias.name}" for alias in names)


def first_sentences(
    tree: ast.Module, nodes: Iterable[ast.stmt], file: str
) -> Iterator[tuple[str, str]]:
    for node in (tree, *nodes):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            docstring = ast.get_docstring(node) or ""
            sentence = docstring.partition("\n\n")[0].replace("\n", " ").partition(". ")[0]
            yield getattr(node, "name", file), sentence


@pytest.mark.parametrize("floor", FLOORS)
def test_no_floor_imports_from_one_above(floor):
    above = {*FLOORS[FLOORS.index(floor) + 1 :], "a relative name", "tests", "bench"}
    wrong = [
        f"{module.relative_to(ROOT)}:{line}: {package}"
        for module in modules(floor)
        for package, line in source(module).packages
        if package in above
    ]
    assert wrong == []


@pytest.mark.parametrize(("package", "home"), HOMES.items())
def test_library_is_imported_only_where_it_was_promised(package, home):
    users = {
        str(module.relative_to(ROOT))
        for floor in FLOORS
        for module in modules(floor)
        if package in source(module).packages_when_run
    }
    assert users, f"nothing imports {package}"
    assert {user for user in users if not user.startswith(home)} == set()


@cache
def home_of(module: Path) -> str:
    """Folder of a module; a door of a root is a folder of its own."""
    name = str(module.relative_to(ROOT))
    return name if name in DOORS else str(module.parent.relative_to(ROOT))


@cache
def file_of(name: str) -> Path | None:
    """File of a module, or of the module that holds a thing of this name."""
    for parts in (name.split("."), name.split(".")[:-1]):
        path = ROOT.joinpath(*parts)
        if path.with_suffix(".py").is_file():
            return path.with_suffix(".py")
        if (path / "__init__.py").is_file():
            return path / "__init__.py"
    return None


def arrows() -> dict[str, set[str]]:
    """For each folder, the folders that it imports from."""
    found: dict[str, set[str]] = {}
    for floor in FLOORS:
        for module in modules(floor):
            home = home_of(module)
            targets = {file_of(name) for name in source(module).names if name.startswith(FLOORS)}
            found.setdefault(home, set()).update(home_of(file) for file in targets if file)
            found[home].discard(home)
    return found


def test_folders_import_in_one_direction():
    """Not even by a detour: they can be put in an order in which each needs only those before."""
    left = arrows()
    while free := {folder for folder, needs in left.items() if not needs & left.keys()}:
        left = {folder: needs for folder, needs in left.items() if folder not in free}
    rings = {folder: sorted(needs & left.keys()) for folder, needs in left.items()}
    assert rings == {}


@pytest.mark.parametrize("floor", [*FLOORS, "tests"])
def test_folders_are_small(floor):
    sizes = Counter(module.parent for module in modules(floor) if module.name != "__init__.py")
    too_large = {
        str(folder.relative_to(ROOT)): size
        for folder, size in sizes.items()
        if size > (LARGEST_ROOT if folder == ROOT / floor and floor != "probes" else LARGEST_FOLDER)
    }
    assert too_large == {}


def test_every_folder_says_what_it_holds():
    folders = {module.parent for floor in FLOORS for module in modules(floor)}
    inits = [folder / "__init__.py" for folder in folders]
    assert [file for file in inits if not (file.is_file() and source(file).docstring)] == []


def test_no_two_classes_have_the_same_name():
    places: dict[str, list[str]] = {}
    for floor in FLOORS:
        for module in modules(floor):
            for name in source(module).classes:
                places.setdefault(name, []).append(str(module.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


@pytest.mark.parametrize("floor", FLOORS)
def test_every_error_of_a_floor_is_in_the_tree_that_is_drawn_of_them(floor):
    errors = source(ROOT / floor / "errors.py")
    words = (errors.docstring or "").split()
    assert {word for word in words if word.endswith("Error")} == {*errors.classes}


@pytest.mark.parametrize("floor", [*FLOORS, "bench", "examples", "tests"])
def test_docstrings_say_what_a_thing_is_and_do_not_ask(floor):
    asking = [
        f"{module.relative_to(ROOT)}: {name}: {sentence}"
        for module in modules(floor)
        if "?" in module.read_text(encoding="utf-8")  # few: no others need to be parsed
        for name, sentence in source(module).first_sentences
        if "? " in f"{sentence} "
    ]
    assert asking == []
