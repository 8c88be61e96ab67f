"""A draft as the text of a Python file."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import dedent, indent

from planner.use_case_drafts.draft import Draft, Method
from planner.use_case_drafts.scope import setting_name

_BODY = " " * 8
"""Indentation of a method's statements."""


@dataclass(frozen=True, slots=True)
class Todo:
    """A line of the file that its reader is asked to look at."""

    line: int
    text: str


def file_of(draft: Draft) -> str:
    """Write a draft as a Python file."""
    head = [f'"""Use case of {draft.script}, written by ddlplan init from its code."""', ""]
    return "\n".join([*head, *_carried(draft), *_class(draft)]) + "\n"


def todos_of(text: str) -> list[Todo]:
    """Give the lines of a file that are marked."""
    lines = enumerate(text.splitlines(), 1)
    return [
        Todo(number, line.strip().removeprefix("# TODO: "))
        for number, line in lines
        if line.lstrip().startswith("# TODO: ")
    ]


def _carried(draft: Draft) -> list[str]:
    lines: list[str] = []
    for statement in sorted(draft.carried, key=_is_no_import):
        text = _lines(statement, draft.source)
        is_apart = isinstance(statement, ast.FunctionDef | ast.ClassDef)
        lines += ["", "", *text, ""] if is_apart else text
    return [*lines, "", ""]


def _is_no_import(statement: ast.stmt) -> int:
    if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
        return 0
    return 1 if isinstance(statement, ast.Import | ast.ImportFrom) else 2


def _class(draft: Draft) -> list[str]:
    lines = [f"class {draft.class_name}:"]
    lines += [f"    # TODO: {_one_line(text)}" for text in draft.todo]
    lines.append(f"    name = {draft.name!r}")
    if draft.default_batch is not None:
        lines.append(f"    default_batch = {draft.default_batch}")
    if draft.max_gradient_norm is not None:
        lines.append(f"    max_gradient_norm = {draft.max_gradient_norm!r}")
    if draft.settings:
        names = [setting_name(option.name) for option in draft.settings]
        given = [
            f"{name}: {option.type} = {option.default!r}"
            for name, option in zip(names, draft.settings, strict=True)
        ]
        lines += ["", f"    def __init__(self, {', '.join(given)}):"]
        lines += [f"        self.{name} = {name}" for name in names]
    for method in draft.methods:
        lines += ["", *_method(method, draft)]
    return lines


def _method(method: Method, draft: Draft) -> list[str]:
    where = "" if method.line is None else f"  # {draft.script}, line {method.line}"
    lines = [f"    def {method.name}({method.arguments}):{where}"]
    lines += [f"        # TODO: {_one_line(text)}" for text in method.todo]
    if not method.body:
        return [*lines, f'        raise NotImplementedError("TODO: {method.name}()")']
    for statement in method.body:
        written = _lines(statement, draft.source, _BODY)
        lines += [f"{_BODY}{line}" if line else "" for line in written]
    return lines


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


def _lines(statement: ast.stmt, source: str, indentation: str = "") -> list[str]:
    """Write a statement as the script has it, where it is unchanged and will be, indented."""
    first = getattr(statement, "lineno", 0)
    if decorators := getattr(statement, "decorator_list", []):
        first = decorators[0].lineno
    if first:
        text = dedent("\n".join(source.splitlines()[first - 1 : statement.end_lineno]))
        if _is_same(text, statement, indentation):
            return text.splitlines()
    match statement:
        case ast.With(items=items, body=body):
            head = f"with {', '.join(map(ast.unparse, items))}:"
            return [head, *_indented(body, source, indentation)]
        case ast.If(test=test, body=body, orelse=[]):
            return [f"if {ast.unparse(test)}:", *_indented(body, source, indentation)]
    return ast.unparse(ast.fix_missing_locations(statement)).splitlines()


def _indented(body: Sequence[ast.stmt], source: str, indentation: str) -> list[str]:
    inner = f"{indentation}    "
    lines = [line for statement in body for line in _lines(statement, source, inner)]
    return [f"    {line}" if line else "" for line in lines]


def _is_same(text: str, statement: ast.stmt, indentation: str) -> bool:
    """Tell whether a text reads as a statement, also indented: texts in triple quotes may not."""
    if indentation:
        text = "if 1:\n" + indent(text, indentation)
    try:
        (read,) = ast.parse(text).body
        if indentation:
            assert isinstance(read, ast.If)
            (read,) = read.body
    except (SyntaxError, ValueError):
        return False
    return ast.dump(read) == ast.dump(statement)
