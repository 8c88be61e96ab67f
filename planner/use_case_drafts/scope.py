"""Names of a script: what a method made of its statements needs from the rest of the file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from launch.use_cases._base import UseCase
from planner.use_case_drafts.code import (
    BUILTINS,
    names_bound,
    names_read,
    slice_of,
    values_assigned,
)
from planner.use_case_drafts.draft import Method
from planner.use_case_drafts.options import Option, Options, constant_of

_ASKING = {"input", "exec", "eval"}
_TAKEN = {"data", "name", *(name for name in vars(UseCase) if not name.startswith("_"))}


@dataclass
class Scope:
    """What the methods of a draft need of a script, gathered while they are made."""

    tree: ast.Module
    statements: list[ast.stmt]
    """Top level of the script, with what is behind ``if __name__ == ...``."""
    options: Options
    settings: dict[str, Option] = field(default_factory=dict)
    wanted: set[str] = field(default_factory=set)
    """Names of the top level that are needed."""

    @property
    def fixed(self) -> frozenset[str]:
        """Names that no slice of statements has to make: modules, functions, options."""
        nodes = [
            node for node in ast.walk(self.tree) if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        defined = [node for node in self.tree.body if _is_definition(node)]
        return frozenset(names_bound(nodes) | names_bound(defined) | self.options.holders)

    def method(
        self,
        name: str,
        arguments: str,
        statements: Sequence[ast.stmt],
        *,
        line: int,
        todo: Iterable[str] = (),
    ) -> Method:
        """Make statements of the script, which are in this line of it, a method of the contract.

        They have settings for options. What else they need joins what is needed of the top level,
        and what is not known here what is to be filled in or looked at.
        """
        is_of_object = "self" in names_read(statements)
        replacing = _OptionsReplacer(self.options)
        body = [replacing.visit(deepcopy(statement)) for statement in statements]
        given = {"self", *re.findall(r"\w+", arguments)}
        free = names_read(body) - names_bound(body) - given - BUILTINS
        bound = names_bound(s for s in self.statements if _is_definition(s) or _is_value(s))
        problems = list(replacing.problems)
        if is_of_object:
            problems.append("self is the script's own object: put what is meant in its place")
        if asked := sorted(names_read(body) & self._asking_functions()):
            problems.append(f"{', '.join(asked)}() reads the command line: put its values here")
        for one in sorted(free):
            if one in bound - self.options.holders:
                self.wanted.add(one)
            elif one not in self.options.holders:  # of which is said more above
                problems.append(f"{one} is not known here")
        read = names_read(body)
        problems += [f"{one}() cannot be answered here" for one in sorted(_ASKING & read)]
        self.settings |= replacing.used
        left = tuple(dict.fromkeys(problems))
        return Method(name=name, arguments=arguments, body=body, todo=(*todo, *left), line=line)

    def _asking_functions(self) -> set[str]:
        """Name the functions of the script that read its command line."""
        return {
            node.name
            for node in self.tree.body
            if isinstance(node, ast.FunctionDef)
            if any(
                isinstance(inner, ast.Attribute) and inner.attr in ("parse_args", "argv")
                for inner in ast.walk(node)
            )
        }

    def carried(self) -> tuple[tuple[ast.stmt, ...], list[str]]:
        """Give what the script's top level has of what is needed, and what is not known of it."""
        needed, taken = set(self.wanted), set[int]()
        while True:
            more = {id(s) for s in self._making(needed)}
            names = names_read(s for s in self.statements if id(s) in more)
            if more == taken:
                break
            taken, needed = more, needed | (names & names_bound(self.statements))
        kept = [_only(s, needed) for s in self.statements if id(s) in taken]
        unknown = sorted(names_read(kept) & self.options.holders)
        problems = [
            f"what is read from {name} at the top of the file: write its value" for name in unknown
        ]
        return tuple(kept), problems

    def _making(self, needed: set[str]) -> list[ast.stmt]:
        defined = [
            s for s in self.statements if _is_definition(s) and names_bound([s]) & needed
        ] + [s for s in self.statements if _is_future(s)]
        modules = names_bound(s for s in self.statements if _is_definition(s))
        values = [s for s in self.statements if _is_value(s) or isinstance(s, ast.Expr)]
        return defined + slice_of(values, needed, modules)


def _is_definition(node: ast.stmt) -> bool:
    if isinstance(node, ast.Try):  # of an import that may fail
        return any(isinstance(inner, ast.Import | ast.ImportFrom) for inner in node.body)
    return isinstance(
        node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    )


def _is_value(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _only(statement: ast.stmt, needed: set[str]) -> ast.stmt:
    """Give an import without the names that nobody needs."""
    if _is_future(statement):
        return statement
    match statement:
        case ast.Import(names=names):
            return ast.Import([a for a in names if _bound_by(a) in needed])
        case ast.ImportFrom(module=module, names=names, level=level):
            kept = [a for a in names if _bound_by(a) in needed or a.name == "*"]
            return ast.ImportFrom(module, kept, level)
    return statement


def _bound_by(alias: ast.alias) -> str:
    return (alias.asname or alias.name).partition(".")[0]


class _OptionsReplacer(ast.NodeTransformer):
    """Puts ``self.lr`` in the place of ``args.lr``."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self.used: dict[str, Option] = {}
        self.problems: list[str] = []

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        match node:
            case ast.Attribute(value=ast.Name(id=holder), attr=name) if (
                holder in self._options.holders
            ):
                if (option := self._options.known.get(name)) is None:
                    self.problems.append(f"{holder}.{name} has no default that is written there")
                    return node
                if name in self._options.changed:
                    self.problems.append(
                        f"the script sets {holder}.{name} itself: see that it has that value here"
                    )
                self.used[name] = option
                return ast.Attribute(ast.Name("self", ast.Load()), setting_name(name), node.ctx)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self._options.holders:
            self.problems.append(f"{node.id} is used as a whole: name its options one by one")
        return node


def setting_name(option: str) -> str:
    """Name a setting as the option, but where a use case has another thing of that name."""
    return f"{option}_option" if option in _TAKEN else option


def value_of(node: ast.expr | None, options: Options, before: Sequence[ast.stmt]) -> object:
    """Give a number that is written out, the default of an option, or a name's one such value."""
    match node:
        case ast.Attribute(value=ast.Name(id=holder), attr=name) if holder in options.holders:
            option = options.known.get(name)
            return None if option is None else option.default
        case ast.Name(id=name):
            values = values_assigned(before, name)
            return value_of(values[0], options, []) if len(values) == 1 else None
    return constant_of(node)
