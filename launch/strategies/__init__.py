"""Parallelism strategies: one module each, found by file name."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from inspect import getmembers, isclass
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from launch.errors import UnknownStrategyError
from launch.summaries import first_line

if TYPE_CHECKING:
    from launch.plan import Plan
    from launch.strategies._base import Strategy


def strategy_names() -> list[str]:
    """Return the name of every strategy, sorted, without importing any."""
    return sorted(m.name for m in iter_modules(__path__) if not m.name.startswith("_"))


def load_strategy(name: str) -> Strategy:
    """Return the strategy of that name; torch is not imported by this.

    Raises:
        UnknownStrategyError: No file of that name is in this folder.
    """
    from launch.strategies._base import Strategy

    names = strategy_names()
    if name not in names:
        close = get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise UnknownStrategyError(
            f"unknown strategy {name!r}: {hint}choose one of {', '.join(names)}"
        )
    module = import_module(f"{__name__}.{name}")
    classes = getmembers(module, lambda member: isclass(member) and issubclass(member, Strategy))
    own = [member for _, member in classes if member.__module__ == module.__name__]
    assert len(own) == 1, f"{module.__name__} must define exactly one strategy"
    strategy: Strategy = own[0]()
    return strategy


def check_plan(plan: Plan) -> None:
    """Hold a plan against the strategy that it names; torch is not imported by this.

    Raises:
        UnknownStrategyError: There is no such strategy.
        InvalidPlanError: The strategy can make nothing of it.
    """
    load_strategy(plan.strategy).check(plan)


def strategy_summaries() -> dict[str, str]:
    """Return the first line of each strategy's docstring, without importing any."""
    return {name: first_line(Path(__path__[0], f"{name}.py")) for name in strategy_names()}
