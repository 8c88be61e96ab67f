"""The smallest node on which a strategy can run, and its plans there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from optuna.trial import FixedTrial

from launch.case_facts import CaseFacts
from launch.plan import Plan
from launch.strategies import load_strategy, strategy_names
from probes.hardware import Hardware

KINDS = ("pipeline", "processes", "threads")
"""A use case meets stages, processes and threads; what else there is are these put together."""

EVERY = pytest.mark.parametrize("name", strategy_names())
EACH_KIND = pytest.mark.parametrize(
    "name",
    [
        name if name in KINDS else pytest.param(name, marks=pytest.mark.long)
        for name in strategy_names()
    ],
)


@dataclass(frozen=True)
class Home:
    """Where a strategy is asked: the smallest node on which it can run."""

    name: str
    node: Hardware
    facts: CaseFacts
    training: Any

    def plans(self) -> list[Plan]:
        """Every layout that the strategy would guess first, plain and with its settings turned."""
        return plans_of(self.name, self.facts, self.node)


@pytest.fixture
def home(name, nodes, tiny_facts, training_on) -> Home:
    strategy = load_strategy(name)
    possible = [node for node in nodes if strategy.obstacle(tiny_facts, node) is None]
    return Home(name, possible[0], tiny_facts, training_on(possible[0]))


def plans_of(name: str, case: CaseFacts, node: Hardware) -> list[Plan]:
    """Every layout that the strategy would guess first, plain and with its settings turned.

    CPU workers stand for GPUs.
    """
    turned = {f"{name}.micro_batches": 2, f"{name}.memory_format": "contiguous"}
    drawn = guessed(name, case, node) + guessed(name, case, node, **turned)
    return [replace(plan, devices=("cpu",)) for plan in drawn]


def guessed(name: str, case: CaseFacts, node: Hardware, **changes: Any) -> list[Plan]:
    """Draw the plans that a strategy would guess first, with changes to what is guessed."""
    strategy = load_strategy(name)
    guesses = strategy.first_guesses(case, node)
    return [strategy.suggest(FixedTrial(guess | changes), case, node) for guess in guesses]
