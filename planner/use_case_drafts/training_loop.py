"""The training loop of a script: where it is, what comes before it, what it does with a batch."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from planner.errors import UsageError
from planner.use_case_drafts.code import dotted, last_name, renamed

Function = ast.FunctionDef | ast.AsyncFunctionDef
_BATCH_WRAPPERS = {"tqdm", "enumerate", "track", "islice", "trange"}
_BACKWARD_OF = {"accelerator", "fabric"}
"""Names of objects whose ``backward`` is given the loss."""
_TRANSPARENT = {"autocast", "accumulate", "no_sync", "set_grad_enabled", "enable_grad"}
"""Contexts around a step that change no result in float32."""


@dataclass(frozen=True, slots=True)
class TrainingLoop:
    """A loop over batches with ``backward()`` in it."""

    before: list[ast.stmt]
    """What is executed before it in the same function, or in the one that calls it."""
    others: list[ast.stmt]
    """All statements of that function, with those after the loop."""
    batch: ast.expr
    """What a batch is assigned to."""
    batches: ast.expr
    """What it is taken from."""
    body: list[ast.stmt]
    """Statements of the loop; contexts such as autocast are opened."""
    losses: list[ast.expr]
    """What ``backward()`` is called on, each time."""


def as_it_is(script: Path) -> str:
    """Say how a script is tuned that no use case can be made of."""
    return f"tune the script as it is: ddlplan tune -- python {quote(str(script))}"


def find_loop(tree: ast.Module, script: Path) -> TrainingLoop:
    """Find the one training loop of a script.

    Raises:
        UsageError: There is none, or there are several.
    """
    found = [(path, loop) for path, loop in _loops(tree.body, ()) if _losses(loop)]
    innermost = [(p, loop) for p, loop in found if not any(loop in other for other, _ in found)]
    if not innermost:
        raise UsageError(
            f"{script}: no for loop calls backward(): {as_it_is(script)}; or name its "
            "LightningModule or its model of transformers, see docs/adapters.md; or write the use "
            "case by hand, see docs/own-model.md"
        )
    if len(innermost) > 1:
        lines = ", ".join(str(loop.lineno) for _, loop in innermost)
        raise UsageError(
            f"{script}: {len(innermost)} loops call backward() (lines {lines}), and a use case "
            f"has one: {as_it_is(script)}"
        )
    ((path, loop),) = innermost
    holder = next((node for node in reversed(path) if isinstance(node, Function)), None)
    inside = holder.body if holder else opened(tree.body)
    before, body = statements_before(inside, loop), opened(loop.body)
    target, batches = loop.target, loop.iter
    others = inside
    if holder is not None and holder.args.args and (call := _only_call(tree, holder)) is not None:
        caller, statement, places = call
        outer = caller.body if caller else opened(tree.body)
        new = {name: value for name, value in places.items() if not isinstance(value, ast.Constant)}
        inner = [renamed(node, new) for node in before]
        before = [*statements_before(outer, statement), *inner]
        batches, body = renamed(batches, new), [renamed(node, new) for node in body]
        others = outer
    target, batches = _unwrapped(target, batches)
    return TrainingLoop(
        before=before,
        others=others,
        batch=target,
        batches=batches,
        body=body,
        losses=_losses_in(body),
    )


def _loops(
    statements: Sequence[ast.stmt], path: tuple[ast.AST, ...]
) -> Iterator[tuple[tuple[ast.AST, ...], ast.For]]:
    for statement in statements:
        if isinstance(statement, ast.For):
            yield path, statement
        for name in ("body", "orelse", "finalbody"):
            yield from _loops(getattr(statement, name, []), (*path, statement))


def _losses(loop: ast.For) -> list[ast.expr]:
    inner = {
        id(n)
        for f in ast.walk(loop)
        if isinstance(f, ast.For) and f is not loop
        for n in ast.walk(f)
    }
    return [loss for loss in _losses_in(loop.body) if id(loss) not in inner]


def _losses_in(statements: Sequence[ast.stmt]) -> list[ast.expr]:
    """Give what backward() is called on; of a scaled loss, the loss."""
    found: list[ast.expr] = []
    for statement in statements:
        for node in ast.walk(statement):
            match node:
                case ast.Call(func=ast.Attribute(value=value, attr="backward"), args=[loss]) if (
                    dotted(value) in _BACKWARD_OF
                ):
                    found.append(loss)
                case ast.Call(
                    func=ast.Attribute(value=ast.Call(func=func, args=[loss]), attr="backward")
                ) if last_name(func) == "scale":
                    found.append(loss)
                case ast.Call(func=ast.Attribute(value=loss, attr="backward")):
                    found.append(loss)
    return found


def opened(statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Give statements with those of ``if __name__ == ...`` and of such contexts among them."""
    found: list[ast.stmt] = []
    for statement in statements:
        match statement:
            case ast.If(test=ast.Compare(left=ast.Name(id="__name__")), body=body):
                found += opened(body)
            case ast.With(items=items, body=body) if all(
                isinstance(i.context_expr, ast.Call)
                and last_name(i.context_expr.func) in _TRANSPARENT
                for i in items
            ):
                found += opened(body)
            case _:
                found.append(statement)
    return found


def statements_before(statements: Sequence[ast.stmt], wanted: ast.AST) -> list[ast.stmt]:
    """Give what is executed before a statement, on all levels down to it."""
    found: list[ast.stmt] = []
    for statement in opened(statements):
        if statement is wanted:
            return found
        if any(node is wanted for node in ast.walk(statement)):
            for name in ("body", "orelse", "finalbody"):
                inner = getattr(statement, name, [])
                if any(node is wanted for part in inner for node in ast.walk(part)):
                    return found + statements_before(inner, wanted)
            return found
        found.append(statement)
    return found


def _only_call(
    tree: ast.Module, function: Function
) -> tuple[Function | None, ast.stmt, dict[str, ast.expr]] | None:
    """Find where a function is called, if in one place, with what its arguments stand for."""
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == function.name
    ]
    if len(calls) != 1:
        return None
    (call,) = calls
    names = [argument.arg for argument in function.args.args]
    places = dict(zip(names, call.args, strict=False))
    places |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    functions = [node for node in tree.body if isinstance(node, Function)]
    caller = next((f for f in functions if any(node is call for node in ast.walk(f))), None)
    statements = [s for s in ast.walk(caller or tree) if isinstance(s, ast.stmt)]
    holding = [s for s in statements if any(node is call for node in ast.walk(s))]
    return caller, holding[-1], places


def _unwrapped(target: ast.expr, batches: ast.expr) -> tuple[ast.expr, ast.expr]:
    """Take ``tqdm(...)`` and ``enumerate(...)`` away."""
    while (
        isinstance(batches, ast.Call)
        and last_name(batches.func) in _BATCH_WRAPPERS
        and batches.args
    ):
        if last_name(batches.func) == "enumerate" and isinstance(target, ast.Tuple):
            target = target.elts[1]
        batches = batches.args[0]
    return target, batches
