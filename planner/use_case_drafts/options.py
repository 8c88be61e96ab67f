"""Options of a script, as ``argparse`` is told of them: they become settings of the use case."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from planner.use_case_drafts.code import last_name

_PARSING = {"parse_args", "parse_known_args"}
_TYPES = {"int", "float", "str", "bool"}
_FLAGS: Mapping[object, bool] = {"store_true": False, "store_false": True}
"""Defaults of flags that name none."""


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
    changed: frozenset[str] = frozenset()
    """Names of those that the script sets itself, such as ``args.lr *= 2``."""


def read_options(tree: ast.Module) -> Options:
    """Find the options of a script whose default is written there."""
    holders, changed = set[str](), set[str]()
    found: dict[str, Option | None] = {}
    asking = _PARSING | {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Return) and inner.value and _is_parsing(inner.value)
    }
    for node in ast.walk(tree):
        match node:
            case (
                ast.Assign(targets=[target], value=ast.Call(func=func))
                | ast.AnnAssign(target=target, value=ast.Call(func=func))
            ) if last_name(func) in asking:
                first = target.elts[0] if isinstance(target, ast.Tuple) else target
                holders.add(last_name(first))
            case ast.Call(func=func, args=args, keywords=given) if (
                last_name(func) == "add_argument"
            ):
                settings = {k.arg: k.value for k in given if k.arg}
                name = _destination(args, settings)
                # Of several options with one destination, argparse takes the first one's default.
                found.setdefault(name, _read_option(name, settings))
            case ast.Call(func=func, keywords=given) if last_name(func) == "set_defaults":
                changed |= {k.arg for k in given if k.arg}
    known = {n: option for n, option in found.items() if option is not None and n not in changed}
    set_later = frozenset(
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if isinstance(node.value, ast.Name) and node.value.id in holders
    )
    return Options(frozenset(holders), known, set_later)


def _is_parsing(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) in _PARSING


def _destination(flags: Sequence[ast.expr], settings: Mapping[str, ast.expr]) -> str:
    """Name the attribute that holds an option's value; empty where that is not written there."""
    match settings.get("dest"):
        case ast.Constant(value=str(given)):
            return given
    texts = [f.value for f in flags if isinstance(f, ast.Constant) and isinstance(f.value, str)]
    long = next((text for text in texts if text.startswith("--")), texts[0] if texts else "")
    return long.lstrip("-").replace("-", "_")


def _read_option(name: str, settings: Mapping[str, ast.expr]) -> Option | None:
    default = constant_of(settings.get("default"))
    if "default" not in settings:
        default = _FLAGS.get(constant_of(settings.get("action")))
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
