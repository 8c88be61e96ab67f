"""Parallelism strategies: one module each, found by file name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from launch.errors import UnknownStrategyError
from launch.system.found_by_file import list_names, load_only_class, read_summaries
from launch.system.name_suggestion import suggest

if TYPE_CHECKING:
    from launch.plan import Plan
    from launch.strategies._base import Strategy

_FOLDER = Path(__file__).parent


def strategy_names() -> list[str]:
    """Return the name of every strategy, sorted, without importing any."""
    return list_names(_FOLDER)


def load_strategy(name: str) -> Strategy:
    """Return the strategy of that name; torch is not imported by this.

    Raises:
        UnknownStrategyError: No file of that name is in this folder.
    """
    from launch.strategies._base import Strategy

    names = strategy_names()
    if name not in names:
        raise UnknownStrategyError(f"unknown strategy {name!r}: {suggest(name, names)}")
    return load_only_class(f"{__name__}.{name}", Strategy)()  # type: ignore[type-abstract]


def check_plan(plan: Plan) -> None:
    """Check a plan by the rules of the strategy that it names; torch is not imported by this.

    Raises:
        UnknownStrategyError: There is no such strategy.
        InvalidPlanError: The strategy cannot build it.
    """
    load_strategy(plan.strategy).check(plan)


def strategy_summaries() -> dict[str, str]:
    """Return the first line of each strategy's docstring, without importing any."""
    return read_summaries(_FOLDER)
