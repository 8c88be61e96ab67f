"""Drawing plans, and changing one setting of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from imagined_machines import CASE, node_of

from launch.strategies import strategy_names
from planner.search.space import PlanSpace

SPACES = [
    PlanSpace(strategy_names(), CASE, node_of(cores, gpus))
    for cores, gpus in ((2, 0), (8, 0), (64, 0), (16, 4))
]


@pytest.mark.parametrize("space", SPACES)
def test_neighbours_differ_from_a_plan_and_from_each_other(space):
    for guess in space.guesses:
        keys = [other.plan for other in space.neighbours(guess)]
        assert len(set(keys)) == len(keys) > 5
        assert guess.plan not in keys


@pytest.mark.parametrize("space", SPACES)
def test_what_was_drawn_makes_the_same_plan_again(space):
    generator = np.random.default_rng(0)
    drawn = [space.draw_randomly(generator) for _ in range(50)]
    found = [one for one in drawn if one is not None]
    assert len(found) > 30
    assert all(space.find(one.parameters).plan == one.plan for one in found)
    assert all(one.plan.threads <= space.node.cpu.usable_cores for one in found)


def test_files_with_loading_processes_are_one_change_away_from_decoded_pictures():
    space = SPACES[0]
    guess = next(one for one in space.guesses if one.plan.input == "cache")
    loaders = {
        other.plan.loader_workers
        for other in space.neighbours(guess)
        if other.plan
        == replace(guess.plan, input="files", loader_workers=other.plan.loader_workers)
    }
    assert loaders == {0, 1, 2}


def test_change_of_strategy_keeps_the_other_settings():
    space = SPACES[0]
    (guess,) = [one for one in space.guesses if one.plan.strategy == "processes"]
    odd = space.find({**guess.parameters, "processes.allocator": "jemalloc"})
    (changed,) = [o for o in space.neighbours(odd) if o.plan.strategy == "sequential"]
    assert changed.plan.allocator == "jemalloc"
    assert changed.plan.node_batch == odd.plan.node_batch


def counts_of(space: PlanSpace) -> dict[str, list[int]]:
    """Numbers of micro-batches that there are to choose from, by strategy and device."""
    return {
        name.removesuffix(".micro_batches"): list(values)
        for guess in space.guesses
        for name, values in guess.choices.items()
        if name.endswith(".micro_batches")
    }


@pytest.mark.parametrize("usual", SPACES)
def test_a_large_batch_that_is_fixed_is_cut_down_to_the_default_one(usual):
    batch = 64 * CASE.default_batch
    fixed = replace(CASE, batch_choices=(batch,), gpu_batch_choices=(batch,))
    space = PlanSpace(strategy_names(), fixed, usual.node)
    before = counts_of(usual)
    assert counts_of(space).keys() == before.keys()
    for name, counts in counts_of(space).items():
        assert counts == sorted(set(counts))
        assert counts[: len(before[name])] == before[name]
        assert batch // counts[-1] == CASE.default_batch
    for plan in (guess.plan for guess in space.guesses):
        largest = 4 if "cpu" in plan.devices else 16
        assert plan.node_batch / plan.micro_batches <= largest * CASE.default_batch


def test_a_small_batch_that_is_fixed_has_the_usual_micro_batches():
    fixed = replace(CASE, batch_choices=(CASE.default_batch,), gpu_batch_choices=())
    assert counts_of(PlanSpace(strategy_names(), fixed, node_of(8))) == counts_of(SPACES[1])


def test_space_of_named_plans_has_no_others():
    few = [guess.parameters for guess in SPACES[0].guesses[:2]]
    space = PlanSpace(strategy_names(), CASE, node_of(2), only=few)
    generator = np.random.default_rng(0)
    keys = {space.draw_randomly(generator).plan for _ in range(30)}
    assert keys == {guess.plan for guess in SPACES[0].guesses[:2]}
