"""Neighbours of the best plan: one setting changed, the most promising change first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import permutations
from typing import Any, Self

import optuna
from optuna.distributions import CategoricalDistribution

from launch.plan import Plan, Setting

STRATEGY = "strategy"

_ORDER = (
    *("cuda_graph", "node_batch", "precision", "allocator", "micro_batches", "compile"),
    *("memory_format", "input", "fused_optimizer", "loader_workers"),
)
"""Settings by how much a change may gain over a strategy's first guess, the most first. Before them
come those that only the strategy knows, such as its layout; after them, other settings of a plan.
The guess has the better value of the last ones already, as a rule."""

_SHARED = frozenset(setting.name for setting in fields(Plan))

_SMALL = 0.01
"""Relative change of the time that counts as none: it is less than trials tell apart."""

_MOST_TRIALS = 60


@dataclass(frozen=True, slots=True)
class Effects:
    """What single changes did to the time so far, in whichever plan.

    Settings are named without their strategy: what a fused optimizer gains in one strategy is a
    good guess for another.
    """

    gains: Mapping[tuple[str, Any, Any], float] = field(default_factory=dict)
    """By setting, old and new value: the largest logarithm of old time / new time."""

    @classmethod
    def from_trials(cls, done: Sequence[optuna.trial.FrozenTrial]) -> Self:
        """Compare trials that differ in one setting alone."""
        gains: dict[tuple[str, Any, Any], float] = {}
        for one, other in permutations(done[-_MOST_TRIALS:], 2):
            changed = _differences(one.params, other.params)
            if len(changed) == 1 and one.value and other.value:
                (name,) = changed
                key = (_setting_name(name), one.params[name], other.params[name])
                gain = math.log(one.value / other.value)
                gains[key] = max(gain, gains.get(key, -math.inf))
        return cls(gains)

    def penalty(self, name: str, old: Any, new: Any) -> int:
        """Say how little a change promises.

        Returns:
            0 where nothing speaks against it; 1 where other values of the setting made no
            difference; 2 where this very change has brought nothing.
        """
        if self.gains.get((_setting_name(name), old, new), math.inf) < _SMALL:
            return 2
        known = [
            abs(gain) for (short, _, _), gain in self.gains.items() if short == _setting_name(name)
        ]
        return 1 if known and max(known) < _SMALL else 0


def neighbours(
    best: optuna.trial.FrozenTrial, done: Sequence[optuna.trial.FrozenTrial]
) -> Iterator[dict[str, Setting]]:
    """Change one setting of the best plan, the most promising change first.

    Every setting has its first turn before any has its second, but for those that only the strategy
    knows, which have two at once. What brought nothing so far, be it in another plan, comes last.

    Args:
        best: The best trial.
        done: All that showed a time.
    """
    effects = Effects.from_trials(done)
    ranked = []
    for name, distribution in best.distributions.items():
        if name == STRATEGY or not isinstance(distribution, CategoricalDistribution):
            continue
        old, place = best.params[name], _setting_rank(name)
        for turn, new in enumerate(_other_values(old, distribution.choices, is_own=place < 0)):
            rank = (effects.penalty(name, old, new), turn // 2 if place < 0 else turn, place)
            ranked.append((rank, name, new))
    for _, name, new in sorted(ranked, key=lambda entry: entry[0]):
        yield {**best.params, name: new}


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    if one.keys() != other.keys():
        return []
    return [name for name, value in one.items() if other[name] != value]


def _other_values(value: Any, choices: Sequence[Any], *, is_own: bool) -> Iterator[Any]:
    """Give other choices, the nearest first; of numbers only the next larger and smaller.

    Of two that are as near the later one comes first, but for a strategy's own settings, which it
    lists with the most promising ahead.
    """
    place = choices.index(value)
    near = {i: (abs(i - place), i if is_own else -i) for i in range(len(choices)) if i != place}
    is_ordered = all(isinstance(choice, int) for choice in choices)
    for other in sorted(near, key=near.__getitem__):
        if not is_ordered or abs(other - place) == 1:
            yield choices[other]


def _setting_name(name: str) -> str:
    """Leave out what parameter names begin with: the strategy, and ``gpu`` where it names it."""
    return name.rpartition(".")[2]


def _setting_rank(name: str) -> int:
    short = _setting_name(name)
    if short not in _SHARED:
        return -1
    return _ORDER.index(short) if short in _ORDER else len(_ORDER)
