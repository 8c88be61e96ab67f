"""Number of a batch, which a ``training_step`` may take, and which is 0 in every step here."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from typing import Any


def takes_number(training_step: Callable[..., Any]) -> bool:
    """Tell whether a bound method takes the number as an argument behind the batch."""
    kinds = [one.kind for one in inspect.signature(training_step).parameters.values()]
    named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return inspect.Parameter.VAR_POSITIONAL in kinds or sum(kind in named for kind in kinds) > 1


def without_number(module: Any, batch: Any, _: int) -> Any:
    """Call the method of a module that takes no number."""
    return module.training_step(batch)


def explain_number(module: Any) -> str | None:
    """Say that a module's method reads the number; ``None`` where it does not, as most."""
    code = getattr(inspect.unwrap(module.training_step), "__code__", None)
    if code is None or code.co_argcount < 3 or not takes_number(module.training_step):
        return None
    name = code.co_varnames[2]  # after self and the batch
    loads = (
        one.argval if isinstance(one.argval, tuple) else (one.argval,)
        for one in dis.get_instructions(code)
        if "LOAD_FAST" in one.opname or one.opname in ("LOAD_DEREF", "LOAD_CLOSURE")
    )
    if not any(name in names for names in loads):
        return None
    return (
        f"training_step of {type(module).__name__} reads {name}, which is 0 in every step here, so "
        "that what it does with some batches only, as a plot with every 100th, is done with each "
        "or none: let the module count them itself"
    )
