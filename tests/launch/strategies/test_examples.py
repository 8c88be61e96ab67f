"""Use cases of `examples/` train with every strategy that can run them, as one process would."""

from dataclasses import replace
from pathlib import Path

import example_cases
import pytest
import torch
from described_cases import described
from one_process import TOLERANCE, gradient_error
from strategy_homes import EACH_KIND

from launch.strategies import load_strategy

FILE = Path(example_cases.__file__)
NO_STAGES = {
    "TextClassifier": "the inputs of its batches differ in shape: pad them alike",
    "UnetMasks": "the use case gives no layers()",
    "Recommender": "the use case gives no layers()",
}
"""Why it cannot be cut into stages."""


@pytest.fixture(scope="module")
def facts():
    return {case: described(getattr(example_cases, case))[-1].facts for case in NO_STAGES}


@EACH_KIND
@pytest.mark.parametrize("case", NO_STAGES)
def test_gradients_equal_those_of_one_process_or_the_strategy_says_why_not(case, home, facts):
    obstacle = load_strategy(home.name).obstacle(facts[case], home.node)
    if home.name in ("pipeline", "hybrid"):
        assert NO_STAGES[case] in obstacle
        assert "\n" not in obstacle
        return
    assert obstacle is None
    weights = home.training.run(replace(home.plans()[-1], node_batch=16), case, file=FILE)
    assert gradient_error(weights, getattr(example_cases, case)(), 16) < TOLERANCE


def test_gradients_of_the_recommender_are_sparse():
    case = example_cases.Recommender()
    model, dataset = case.model(), case.dataset(None, train=True)
    pairs, ratings = map(torch.stack, zip(*(dataset[index] for index in range(4)), strict=True))
    case.loss(model(pairs), ratings).backward()
    assert model.users.weight.grad.is_sparse
    assert model.things.weight.grad.is_sparse
