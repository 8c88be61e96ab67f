"""Effects of settings are learned from trials that differ in several settings at once."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import pytest
from worth_cases import BEST, FACTS, NODE, trial

from launch.plan import Plan
from planner.worth.setting_effects import learn_effects

GAINS = {"memory_format": 1.20, "allocator": 1.05, "fused_optimizer": 1.0}
BATCH_GAIN = 1.1


def rate(plan: Plan, noise: random.Random) -> float:
    """Samples per second of an imagined machine, which settings multiply."""
    found = 30.0 * (BATCH_GAIN if plan.node_batch == 128 else 1.0)
    found *= GAINS["memory_format"] if plan.memory_format == "channels_last" else 1.0
    found *= GAINS["allocator"] if plan.allocator == "retain" else 1.0
    return found * (1 + noise.gauss(0, 0.005))


@pytest.fixture
def results():
    """Half of all combinations, none of which differ from the best plan in one setting alone."""
    noise = random.Random(0)
    plans = [
        replace(
            BEST,
            memory_format=layout,
            allocator=allocator,
            fused_optimizer=is_fused,
            node_batch=batch,
        )
        for layout, allocator, is_fused, batch in product(
            ("contiguous", "channels_last"), ("default", "retain"), (False, True), (64, 128)
        )
    ]
    kept = [plan for plan in plans if _count_changes(plan) != 1]
    return [trial(number, plan, rate(plan, noise)).result for number, plan in enumerate(kept * 2)]


def _count_changes(plan: Plan) -> int:
    best = replace(BEST, allocator="retain")
    return sum(getattr(plan, name) != getattr(best, name) for name in (*GAINS, "node_batch"))


def test_each_setting_gets_its_own_effect(results):
    best = replace(BEST, allocator="retain")
    found = {(one.setting, one.other): one for one in learn_effects(best, results, FACTS, NODE)}
    layout = found["memory_format", "contiguous"].speed
    assert layout.low < 1 / GAINS["memory_format"] < layout.high
    assert layout.high < 1
    fused = found["fused_optimizer", "false"].speed
    assert fused.low < 1 < fused.high
    assert found["allocator", "default"].value == "retain"
    assert found["allocator", "default"].speed.count > 0


def test_trials_of_other_strategies_and_failed_ones_name_no_value(results):
    other = trial(99, Plan(strategy="pipeline", node_batch=8, processes=2, micro_batches=4), 1.0)
    best = replace(BEST, allocator="retain")
    found = learn_effects(best, [*results, other.result], FACTS, NODE)
    assert {one.setting for one in found} == {
        *("memory_format", "allocator", "fused_optimizer", "node_batch")
    }


def test_without_another_value_there_is_nothing_to_say():
    assert learn_effects(BEST, [trial(0, BEST, 40.0).result], FACTS, NODE) == []


def test_placeholder_with_the_name_of_a_property_of_plans_is_an_option():
    """The story: {gpus} of a script, which had two values, ended the page of its study."""
    best = Plan(strategy="script", node_batch=32, options={"gpus": 2})
    rates = {best: 40.0, replace(best, options={"gpus": 1}): 20.0}
    results = [trial(n, plan, rate).result for n, (plan, rate) in enumerate(rates.items())]
    (found,) = learn_effects(best, results, FACTS, NODE)
    assert (found.setting, found.value, found.other) == ("gpus", "2", "1")
    assert found.speed.median < 1
