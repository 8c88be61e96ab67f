"""Options of a script, as ``argparse`` is told of them: they become settings of the use case."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from planner.use_case_drafts.code import last_name

_PARSING = {"parse_args", "parse_known_args"}
_TYPES = {"int", "float", "str", "bool"}


@dataclass(frozen=True, slots=True)
class Option:
    """One option with a value that is known."""

    name: str
    type: str
    default: int | float | str | bool


@dataclass(frozen=True, slots=True)
class Options:
    """All options of a script."""

    holders: frozenset[str]
    """Names of what ``parse_args`` gave."""
    known: dict[str, Option]


def read_options(tree: ast.Module) -> Options:
    """Find the options of a script whose default is written there."""
    holders, known = set(), {}
    asking = _PARSING | {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Return) and inner.value and _is_parsing(inner.value)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[target], value=ast.Call(func=func)) if (
                last_name(func) in asking
            ):
                first = target.elts[0] if isinstance(target, ast.Tuple) else target
                holders.add(last_name(first))
            case ast.Call(func=func, args=args) if last_name(func) == "add_argument":
                option = _read_option(args, {k.arg: k.value for k in node.keywords if k.arg})
                if option is not None:
                    known[option.name] = option
    return Options(frozenset(holders), known)


def _is_parsing(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) in _PARSING


def _read_option(flags: Sequence[ast.expr], settings: dict[str, ast.expr]) -> Option | None:
    texts = [f.value for f in flags if isinstance(f, ast.Constant) and isinstance(f.value, str)]
    if not texts:
        return None
    long = next((text for text in texts if text.startswith("--")), texts[0])
    name = long.lstrip("-").replace("-", "_")
    match settings.get("dest"):
        case ast.Constant(value=str(given)):
            name = given
    match settings.get("action"):
        case ast.Constant(value="store_true"):
            return Option(name, "bool", False)
        case ast.Constant(value="store_false"):
            return Option(name, "bool", True)
    default = constant_of(settings.get("default"))
    if default is None:
        return None
    kind = last_name(settings["type"]) if "type" in settings else type(default).__name__
    if kind == "float" and type(default) is int:
        default = float(default)
    if kind not in _TYPES or kind != type(default).__name__:
        return None
    return Option(name, kind, default)


def constant_of(node: ast.AST | None) -> int | float | str | bool | None:
    """Give the value of a number, text or truth value that is written out."""
    if node is None:
        return None
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return None
    return value if isinstance(value, int | float | str | bool) else None
