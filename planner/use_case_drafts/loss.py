"""Loss of a script: what its loop makes of a batch, until ``backward()``."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence, Set
from copy import deepcopy

from planner.use_case_drafts.code import (
    argument,
    calls_in,
    last_name,
    names_bound,
    names_read,
    renamed,
    simplified,
    slice_of,
)
from planner.use_case_drafts.draft import Method
from planner.use_case_drafts.options import constant_of
from planner.use_case_drafts.scope import Scope
from planner.use_case_drafts.training_loop import TrainingLoop, statements_before

_OUTPUT = ast.Name("output", ast.Load())
_WEIGHT_AT = {"CrossEntropyLoss": 0, "NLLLoss": 0, "cross_entropy": 2, "nll_loss": 2}
"""Place of the classes' weights among the arguments of a call."""


def find_loss(
    loop: TrainingLoop, before: list[ast.stmt], model: str | None, scope: Scope, script: str
) -> Iterator[Method]:
    """Give ``loss`` where a batch is a pair and the model is called on its input, else ``step``."""
    (loss,) = loop.losses
    last = next(
        s
        for s in ast.walk(ast.Module(loop.body, []))
        if isinstance(s, ast.stmt) and _holds(s, loss)
    )
    made = simplified(statements_before(loop.body, last))
    loss, made, todo = _without_division(loss, made, script)
    body = [*slice_of(made, names_read([loss]), scope.fixed), ast.Return(loss)]
    if model is None or not names_read(body) & names_bound([loop.batch]):
        text = f"write the mean loss over a batch, as line {loop.losses[0].lineno} has it"
        yield Method(name="step", arguments="self, model, batch", todo=(text,))
        return
    pair = _as_pair(body, loop.batch, model)
    if pair is not None:
        name, arguments, body, given = "loss", "self, output, target", pair, {"output", "target"}
    else:
        name, arguments = "step", "self, model, batch"
        if model != "model":
            body = [renamed(s, {model: ast.Name("model", ast.Load())}) for s in body]
        unpacking = ast.Assign([loop.batch], ast.Name("batch", ast.Load()), lineno=0)
        is_plain = isinstance(loop.batch, ast.Name) and loop.batch.id == "batch"
        body = body if is_plain else [unpacking, *body]
        given = {"model", "batch"}
        if _other_uses(body, "model"):
            todo.append("model can only be called: call it for what is taken from it here")
    outside = names_read(body) - names_bound(body) - given
    if state := sorted(_read_first(body, given) & names_bound(loop.body)):
        todo.append(f"{', '.join(state)}: kept from one step to the next, which no use case can")
    outer = slice_of(before, outside, scope.fixed)
    todo += [*_remarks([*outer, *body]), *_made_anew(outer)]
    line = loop.losses[0].lineno
    yield scope.method(name, arguments, [*outer, *body], line=line, todo=todo)


def _read_first(body: Sequence[ast.stmt], given: Set[str]) -> set[str]:
    """Give the names that are read before anything is assigned to them."""
    bound, found = set(given), set[str]()
    for statement in body:
        found |= names_read([statement]) - bound
        bound |= names_bound([statement])
    return found


def _holds(statement: ast.stmt, wanted: ast.AST) -> bool:
    """Tell whether a statement, and not one within it, has an expression."""
    is_simple = not hasattr(statement, "body")
    return is_simple and any(node is wanted for node in ast.walk(statement))


def _without_division(
    loss: ast.expr, made: list[ast.stmt], script: str
) -> tuple[ast.expr, list[ast.stmt], list[str]]:
    """Leave out a division of the loss by a number of batches, and say so."""
    divisor: ast.expr | None = None
    line = loss.lineno
    match loss:
        case ast.BinOp(left=left, op=ast.Div(), right=divisor):
            loss = left
        case ast.Name(id=name):
            for index, statement in enumerate(made):
                match statement:
                    case ast.Assign(
                        targets=[ast.Name(id=target)],
                        value=ast.BinOp(left=left, op=ast.Div(), right=right),
                    ) if target == name and index == len(made) - 1:
                        divisor, line = right, statement.lineno
                        kept = ast.Assign(statement.targets, left, lineno=line)
                        is_itself = isinstance(left, ast.Name) and left.id == name
                        made = made[:-1] if is_itself else [*made[:-1], kept]
                    case ast.AugAssign(target=ast.Name(id=target), op=ast.Div(), value=right) if (
                        target == name
                    ):
                        divisor, line = right, statement.lineno
                        made = made[:index] + made[index + 1 :]
    if divisor is None:
        return loss, made, []
    text = ast.unparse(divisor)
    return loss, made, [
        f"line {line} of {script} divides the loss by {text}: left out, as ddlplan adds up "
        "micro-batches itself; divide where it means something else"
    ]  # fmt: skip


def _as_pair(body: Sequence[ast.stmt], batch: ast.expr, model: str) -> list[ast.stmt] | None:
    """Write a step as a function of output and target, where it is one."""
    match batch:
        case ast.Tuple(elts=[ast.Name(id=inputs), ast.Name(id=target)]) if inputs != target:
            pass
        case _:
            return None
    body = deepcopy(list(body))
    calls = [c for c in calls_in(body) if isinstance(c.func, ast.Name) and c.func.id == model]
    if len(calls) != 1 or len(_reads(body, model)) != 1 or len(_reads(body, inputs)) != 1:
        return None
    (call,) = calls
    if call.keywords or [last_name(one) for one in call.args] != [inputs]:
        return None
    names_in_use = names_read(body) | names_bound(body)
    written: list[ast.stmt] = []
    new: dict[str, ast.expr] = {target: ast.Name("target", ast.Load())}
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if value is call:
                new[name] = _OUTPUT
            case _:
                written.append(_CallReplacer(call).visit(statement))
    taken = {"output", "target"} - new.keys()
    if taken & names_in_use or names_bound(written) & new.keys():
        return None
    written = [renamed(statement, new) for statement in written]
    match written:
        case [
            ast.Assign(targets=[ast.Name(id=name)], value=value),
            ast.Return(value=ast.Name(id=last)),
        ] if name == last:
            return [ast.Return(value)]
    return written


class _CallReplacer(ast.NodeTransformer):
    def __init__(self, call: ast.Call) -> None:
        self._call = call

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return _OUTPUT if node is self._call else self.generic_visit(node)


def _reads(body: Sequence[ast.stmt], name: str) -> list[ast.Name]:
    return [
        node
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    ]


def _other_uses(body: Sequence[ast.stmt], model: str) -> bool:
    called = [c.func for c in calls_in(body) if isinstance(c.func, ast.Name) and c.func.id == model]
    return len(_reads(body, model)) > len(called)


def _made_anew(outer: Sequence[ast.stmt]) -> Iterator[str]:
    """Name what is made in every step and may be more than a loss function."""
    for statement in outer:
        match statement:
            case ast.Assign(targets=[target], value=ast.Call(func=func)) if not last_name(
                func
            ).endswith("Loss"):
                yield f"{ast.unparse(target)} is made anew in every step here: make it once"


def _remarks(body: Sequence[ast.stmt]) -> Iterator[str]:
    for call in calls_in(body):
        kind = last_name(call.func)
        if "loss" not in kind.lower() and "entropy" not in kind.lower():
            continue
        if constant_of(argument(call, "reduction")) == "sum":
            yield "the loss must be a mean: of a sum, parts of a batch do not add up"
        weight = argument(call, "weight", _WEIGHT_AT.get(kind))
        is_weighted = weight is not None and ast.unparse(weight) != "None"
        if is_weighted or argument(call, "ignore_index") is not None:
            yield "give weight(batch), what the mean of this loss is over: see docs/own-model.md"
