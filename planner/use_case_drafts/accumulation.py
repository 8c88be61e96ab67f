"""Accumulation of a script: of how many batches a step of its optimizer has the gradients."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from planner.use_case_drafts.code import calls_in, last_name
from planner.use_case_drafts.options import Options
from planner.use_case_drafts.scope import value_of
from planner.use_case_drafts.training_loop import TrainingLoop

_ACCELERATE = "gradient_accumulation_steps"


def batches_per_step(
    loop: TrainingLoop, before: Sequence[ast.stmt], options: Options
) -> tuple[int | None, str]:
    """Give the batches of a step, and how the script says so; ``None`` where that is not sure.

    Args:
        loop: The training loop.
        before: What is executed before it, simplified.
        options: Of the script.
    """
    for call in calls_in(loop.before):  # Accelerate is left out of what is simplified
        for keyword in call.keywords:
            if keyword.arg == _ACCELERATE and last_name(call.func) == "Accelerator":
                text = f"{_ACCELERATE}={ast.unparse(keyword.value)}"
                return _count(keyword.value, before, options), text
    for test, line in _conditions(loop.body):
        text = f"`if {ast.unparse(test)}` in line {line}"
        moduli = [
            node.right
            for node in ast.walk(test)
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)
        ]
        return (_count(moduli[0], before, options) if len(moduli) == 1 else None), text
    return 1, ""


def _count(value: ast.expr, before: Sequence[ast.stmt], options: Options) -> int | None:
    found = value_of(value, options, before)
    return found if type(found) is int and found > 0 else None


def _conditions(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.expr, int]]:
    """Find what a step depends on: a condition around it, or one that goes on to the next batch."""
    for statement in body:
        if isinstance(statement, ast.If):
            goes_on = any(isinstance(node, ast.Continue) for node in ast.walk(statement))
            is_counted = any(isinstance(node, ast.Mod) for node in ast.walk(statement.test))
            if any(map(_is_step, calls_in(statement.body))) or (goes_on and is_counted):
                yield statement.test, statement.lineno


def _is_step(call: ast.Call) -> bool:
    """Tell whether it is a step of an optimizer, or of a gradient scaler; not of a schedule."""
    match call.func:
        case ast.Attribute(value=value, attr="step"):
            return "sch" not in last_name(value).lower()
    return False
