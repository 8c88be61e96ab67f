"""Which setting of the best plan is worth changing next?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution

from launch.plan import Setting

STRATEGY = "strategy"

_ORDER = (
    *("node_batch", "precision", "allocator", "micro_batches", "compile"),
    *("memory_format", "input", "fused_optimizer", "loader_workers"),
)
"""Settings by how much a change may gain over a strategy's first guess, the most first; before all
come those that only the strategy knows, such as its layout. The guess has the better value of the
last ones already, as a rule."""

_SMALL = 0.01
"""Relative change of the time that counts as none: it is less than trials tell apart."""

_MOST_TRIALS = 60


def neighbours(
    best: optuna.trial.FrozenTrial, done: Sequence[optuna.trial.FrozenTrial]
) -> Iterator[dict[str, Setting]]:
    """Change one setting of the best plan, the most promising change first.

    Every setting has its first turn before any has its second, but for those that only the strategy
    knows, which have two at once. Those that made no difference where they were changed already, be
    it in another plan, come last.

    Args:
        best: The best trial.
        done: All that showed a time.
    """
    effects = find_effects(done)
    ranked = []
    for name, distribution in best.distributions.items():
        if name == STRATEGY or not isinstance(distribution, CategoricalDistribution):
            continue
        is_idle = effects.get(_short(name), math.inf) < _SMALL
        for turn, value in enumerate(_other_values(best.params[name], distribution)):
            place = _place(name)
            turn = turn // 2 if place < 0 else turn
            ranked.append(((is_idle, turn, place), name, value))
    for _, name, value in sorted(ranked, key=lambda entry: entry[0]):
        yield {**best.params, name: value}


def find_effects(done: Sequence[optuna.trial.FrozenTrial]) -> dict[str, float]:
    """Give by how much each setting changed the time where nothing else was changed.

    Returns:
        For each setting that was, by its name without the strategy's, the largest relative change.
    """
    effects: dict[str, float] = {}
    for one, other in combinations(done[-_MOST_TRIALS:], 2):
        changed = _differences(one.params, other.params)
        if len(changed) == 1 and one.value and other.value:
            name = _short(changed[0])
            effect = abs(math.log(one.value / other.value))
            effects[name] = max(effect, effects.get(name, 0.0))
    return effects


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    if one.keys() != other.keys():
        return []
    return [name for name, value in one.items() if other[name] != value]


def _other_values(value: Any, distribution: BaseDistribution) -> Iterator[Any]:
    """Give other choices: of numbers the next larger and the next smaller, else all from near."""
    assert isinstance(distribution, CategoricalDistribution)
    choices = list(distribution.choices)
    place = choices.index(value)
    others = sorted(set(range(len(choices))) - {place}, key=lambda i: (abs(i - place), -i))
    is_ordered = all(isinstance(choice, int) for choice in choices)
    for other in others:
        if not is_ordered or abs(other - place) == 1:
            yield choices[other]


def _short(name: str) -> str:
    """Leave out the strategy, which parameter names begin with."""
    return name.partition(".")[2]


def _place(name: str) -> int:
    return _ORDER.index(_short(name)) if _short(name) in _ORDER else -1
