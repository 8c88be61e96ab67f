"""Accumulation of a script: of how many batches a step of its optimizer has the gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from planner.use_case_drafts.code import argument, calls_in, last_name
from planner.use_case_drafts.options import Options
from planner.use_case_drafts.scope import value_of
from planner.use_case_drafts.training_loop import TrainingLoop

_ACCELERATE = "gradient_accumulation_steps"


def batches_per_step(
    loop: TrainingLoop, optimizer: str | None, before: Sequence[ast.stmt], options: Options
) -> tuple[int | None, str]:
    """Give the batches of a step, and how the script says so; ``None`` where that is not sure."""
    for call in calls_in(loop.before):  # Accelerate is left out of what is simplified
        given = argument(call, _ACCELERATE)
        if given is not None and last_name(call.func) == "Accelerator":
            return _count(given, before, options), f"{_ACCELERATE}={ast.unparse(given)}"
    steps = [call for call in calls_in(loop.body) if _is_step(call, optimizer)]
    conditions = list(_conditions(loop.body, steps)) if steps else []
    if not conditions:
        return 1, ""
    # Beside one that counts batches, others ask whether a gradient is finite, and the like.
    test, line = next(((test, n) for test, n in conditions if _moduli(test)), conditions[0])
    counts = {
        _count(moduli[0], before, options) if len(moduli) == 1 else None
        for moduli in map(_moduli, (test for test, _ in conditions))
        if moduli
    }
    return (counts.pop() if len(counts) == 1 else None), f"`if {ast.unparse(test)}` in line {line}"


def _count(value: ast.expr, before: Sequence[ast.stmt], options: Options) -> int | None:
    found = value_of(value, options, before)
    return found if type(found) is int and found > 0 else None


def _moduli(test: ast.expr) -> list[ast.expr]:
    operations = (node for node in ast.walk(test) if isinstance(node, ast.BinOp))
    return [node.right for node in operations if isinstance(node.op, ast.Mod)]


def _conditions(
    statements: Sequence[ast.stmt], steps: Sequence[ast.Call]
) -> Iterator[tuple[ast.expr, int]]:
    """Find what the first step depends on: conditions around it, or to go on to the next batch."""
    for statement in statements:
        with_steps = [part for part in _parts(statement) if _has_any(part, steps)]
        if isinstance(statement, ast.If):
            goes_on = _moduli(statement.test) and _goes_on_mostly(statement)
            if len(with_steps) == 1 or (goes_on and not with_steps):
                yield statement.test, statement.lineno
        for part in with_steps:
            yield from _conditions(part, steps)
        if _has_any([statement], steps):
            return


def _parts(statement: ast.stmt) -> list[list[ast.stmt]]:
    """Give the branches of an ``if``; of a ``with`` or a ``try``, what is executed in it."""
    match statement:
        case ast.If(body=body, orelse=orelse):
            return [body, orelse]
        case ast.With(body=body) | ast.AsyncWith(body=body):
            return [body]
        case ast.Try(body=body, orelse=orelse, finalbody=last):
            return [[*body, *orelse, *last]]
    return []


def _goes_on_mostly(statement: ast.If) -> bool:
    """Tell whether most batches end here, as by ``if n % 4``, and not by ``if n % 4 == 0``."""
    rest = statement.orelse if _is_rarely_true(statement.test) else statement.body
    return any(map(_goes_on, rest))


def _is_rarely_true(test: ast.expr) -> bool:
    """Tell whether a condition that counts batches is true for one batch of several only."""
    match test:
        case ast.Compare(left=ast.BinOp(op=ast.Mod()), ops=[ast.Eq()]):
            return True
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _is_rarely_true(operand)
        case ast.BoolOp(values=values):
            return any(_is_rarely_true(value) for value in values if _moduli(value))
    return False


def _goes_on(statement: ast.stmt) -> bool:
    """Tell whether it may go on to the next batch: ``continue``, and not that of a loop in it."""
    inner = (one for part in _parts(statement) for one in part)
    return isinstance(statement, ast.Continue) or any(map(_goes_on, inner))


def _has_any(statements: Sequence[ast.stmt], calls: Sequence[ast.Call]) -> bool:
    return any(call in calls for call in calls_in(statements))


def _is_step(call: ast.Call, optimizer: str | None) -> bool:
    """Tell whether it is a step of the optimizer, or of a gradient scaler that is given it."""
    match call.func:
        case ast.Attribute(value=value, attr="step"):
            names = [last_name(owner) for owner in (value, *call.args)]
            return optimizer in names if optimizer else any("opt" in n.lower() for n in names)
    return False
