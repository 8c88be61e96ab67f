"""Python code as trees: names that it reads and binds, slices, moves to devices left out."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from copy import deepcopy
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)

BUILTINS = frozenset(dir(builtins)) | {"__file__", "__name__"}
_WRAPPERS = {"DistributedDataParallel", "DDP", "DataParallel"}
"""Calls around a model that ddlplan makes itself, where a plan has them; so is torch.compile."""
_TELLING = {
    *("print", "pprint", "display", "show", "imshow", "plot", "save", "dump", "write"),
    *("save_image", "add_param_group", "manual_seed", "seed", "append"),
    *("debug", "info", "warning", "error", "log", "watch", "summary", "add_graph", "add_images"),
}
"""Calls that are made for other ends than to change what they are given."""
_MOVES = {"to", "cuda", "cpu"}
_MODES = {"train", "eval", "zero_grad"}
_KINDS = (
    *("torch.float", "torch.bfloat", "torch.half", "torch.double", "torch.complex"),
    *("torch.long", "torch.int", "torch.short", "torch.uint", "torch.bool"),
)
"""How the names of kinds of numbers begin."""


def dotted(node: ast.AST) -> str:
    """Give ``a.b.c`` of a name or its attributes; empty for anything else."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attribute):
            head = dotted(value)
            return f"{head}.{attribute}" if head else ""
    return ""


def last_name(node: ast.AST) -> str:
    """Give ``c`` of ``a.b.c``, also where ``a`` is the result of a call."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=attribute):
            return attribute
    return ""


def names_read(nodes: Iterable[ast.AST]) -> set[str]:
    """Give the names that code reads and does not bind within a function of its own."""
    found: set[str] = set()
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                found.add(name)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                found |= _names_read_of_function(node)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                inner = names_read(ast.iter_child_nodes(node))
                found |= inner - {n for c in node.generators for n in names_bound([c.target])}
            case ast.AugAssign(target=ast.Name(id=name)):
                found |= {name} | names_read(ast.iter_child_nodes(node))
            case _:
                found |= names_read(ast.iter_child_nodes(node))
    return found


def _names_read_of_function(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
) -> set[str]:
    body = node.body if isinstance(node.body, list) else [node.body]
    arguments = [one for one in ast.walk(node.args) if isinstance(one, ast.arg)]
    outside: list[ast.AST] = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
    if not isinstance(node, ast.Lambda):
        outside += node.decorator_list
        outside += [one.annotation for one in arguments if one.annotation]
        outside += [node.returns] if node.returns else []
    bound = {one.arg for one in arguments} | names_bound(body)
    return names_read(outside) | (names_read(body) - bound)


def names_bound(nodes: Iterable[ast.AST]) -> set[str]:
    """Give the names that code binds, outside of functions and classes in it."""
    found: set[str] = set()
    for node in nodes:
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                found.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found |= {(a.asname or a.name).partition(".")[0] for a in names}
            case ast.ExceptHandler(name=str(name)):
                found |= {name} | names_bound(ast.iter_child_nodes(node))
            case (
                ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp()
            ):
                pass
            case _:
                found |= names_bound(ast.iter_child_nodes(node))
    return found


def _names_changed(statement: ast.stmt) -> set[str]:
    """Give the names whose objects a statement may change: ``x.fit(...)``, ``x[0] = ...``.

    A loop that changes each ``p`` of ``x.parameters()`` changes ``x``; a definition, nothing.
    """
    found: set[str] = set()
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return found
    for node in ast.walk(statement):
        match node:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=value))):
                found.add(dotted(value).partition(".")[0])
            case (
                ast.Subscript(value=value, ctx=ast.Store())
                | ast.Attribute(value=value, ctx=ast.Store())
            ):
                found.add(dotted(value).partition(".")[0])
    for node in reversed(list(ast.walk(statement))):  # inner loops first
        if isinstance(node, ast.For) and found & names_bound([node.target]):
            found |= names_read([node.iter]) - BUILTINS
    return found - {""}


def _names_passed(statement: ast.stmt) -> set[str]:
    """Give the names that a statement gives to calls for what these do: ``init_weights(model)``."""
    match statement:
        case ast.Expr(value=ast.Call(func=func) as call) if last_name(func) not in _TELLING:
            return names_read(given_to(call))
        case ast.For(iter=iterable, body=body) if any(_names_passed(inner) for inner in body):
            return names_read([iterable])
        case ast.With(body=body) | ast.If(body=body):
            return {name for inner in body for name in _names_passed(inner)}
    return set()


def slice_of(
    statements: Sequence[ast.stmt], wanted: Iterable[str], fixed: Set[str]
) -> list[ast.stmt]:
    """Give the statements that make the wanted names what they are at the end, in order.

    Those of fixed names are never wanted, such as those of modules.
    """
    needed, taken = set(wanted) - fixed, []
    for statement in reversed(statements):
        bound = names_bound([statement])
        if not needed & (bound | _names_changed(statement) | _names_passed(statement)):
            continue
        taken.append(statement)
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.FunctionDef | ast.ClassDef):
            needed -= bound  # an `if` or a `with` may leave what was there
        needed |= names_read([statement]) - fixed
    return taken[::-1]


class _Simplifier(ast.NodeTransformer):
    """Leaves out what ddlplan does itself: moves to devices, wrappers of models."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        match node.func:
            case ast.Attribute(value=value, attr=attribute) if (
                attribute in _MOVES and _is_move(node) and not isinstance(value, ast.Constant)
            ):
                return value
        is_wrapper = last_name(node.func) in _WRAPPERS or dotted(node.func) == "torch.compile"
        if is_wrapper and node.args:
            return node.args[0]
        return node


def _is_move(call: ast.Call) -> bool:
    """Whether a call moves to a device, and does not change the kind of numbers."""
    is_of_kind = any(
        dotted(one).startswith(_KINDS) or last_name(one) == "dtype" for one in call.args
    )
    return not is_of_kind and not any(keyword.arg == "dtype" for keyword in call.keywords)


def simplified(statements: Iterable[ast.stmt]) -> list[ast.stmt]:
    """Give statements without moves to devices, modes, and wrappers of models."""
    kept = []
    for statement in statements:
        changed = _Simplifier().visit(deepcopy(statement))
        match changed:
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr=attribute))) if (
                attribute in _MODES
            ):
                continue
            case ast.Expr(value=ast.Name() | ast.Constant() | ast.Attribute()):
                continue  # what is left of model.to(device), and texts
            case ast.Assign(targets=[target], value=value) if ast.unparse(target) == ast.unparse(
                value
            ):
                continue  # model = model.to(device)
            case ast.Assign(value=ast.Call(func=ast.Attribute(attr="prepare"))):
                continue  # Accelerate's
            case ast.If(body=body, orelse=orelse):
                changed.body, changed.orelse = simplified(body), simplified(orelse)
                if not changed.body and not changed.orelse:
                    continue
                changed.body = changed.body or [ast.Pass()]
        kept.append(changed)
    return kept


class _Renamer(ast.NodeTransformer):
    def __init__(self, new: Mapping[str, ast.expr]) -> None:
        self._new = new

    def visit_Name(self, node: ast.Name) -> ast.AST:
        new = self._new.get(node.id)
        if new is None:
            return node
        if isinstance(node.ctx, ast.Store) and isinstance(new, ast.Name):
            return ast.Name(new.id, ast.Store())
        return deepcopy(new)


def renamed(node: Node, new: Mapping[str, ast.expr]) -> Node:
    """Put expressions in the place of names."""
    changed: Node = _Renamer(new).visit(deepcopy(node))
    return changed


def given_to(call: ast.Call) -> list[ast.expr]:
    """Give the values of all arguments of a call."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def argument(call: ast.Call, name: str, position: int | None = None) -> ast.expr | None:
    """Give the value of an argument; without a position only where the call has its name."""
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    place = len(call.args) if position is None else position
    return named.get(name, call.args[place] if place < len(call.args) else None)


def calls_in(nodes: Iterable[ast.AST]) -> Iterator[ast.Call]:
    """Give every call in code."""
    for node in nodes:
        yield from (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))


def assignments(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Give the name and the value of each statement that assigns one to a name alone, in order."""
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value


def values_assigned(statements: Iterable[ast.stmt], name: str) -> list[ast.expr]:
    """Give the values that statements assign to a name alone, in order."""
    return [value for target, value in assignments(statements) if target == name]
