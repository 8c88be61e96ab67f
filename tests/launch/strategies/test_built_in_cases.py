"""Built-in use cases train with every strategy that their layers allow, as one process would."""

from dataclasses import replace
from pathlib import Path

import built_in_cases
import pytest
import torch
from conftest import SEED, long
from one_process import largest_error, trained_alone
from strategy_homes import EACH_KIND, EVERY

from launch.reports import StepDone

CASES = Path(built_in_cases.__file__)
TOLERANCE = 1e-3
"""In float32, through 44 layers."""


@EACH_KIND
@pytest.mark.parametrize(
    "case", ["Cnn", "SmallTransformer", "Folder", *map(long, ["Resnet18Alone", "Resnet44Alone"])]
)
def test_gradients_equal_those_of_one_process(case, home):
    if case == "Folder":
        built_in_cases.make_pictures()
    own = getattr(built_in_cases, case)()
    torch.manual_seed(SEED)
    start = {name: value.clone() for name, value in own.model().state_dict().items()}
    alone = trained_alone(own, node_batch=16)
    plan = replace(home.plans()[-1], node_batch=16)
    weights = home.training.run(plan, case, file=CASES)
    expected = {name: start[name] - alone[name] for name in start}
    gradients = {name: start[name] - weights[name] for name in start}
    assert largest_error(gradients, expected) < TOLERANCE


@EVERY
@pytest.mark.long
@pytest.mark.parametrize("case", ["Resnet18", "Resnet44"])
def test_networks_with_batch_norm_run(case, home):
    home.training.run(replace(home.plans()[-1], node_batch=16), case, file=CASES)
    (step,) = home.training.reports(StepDone)
    assert 0 < step.loss < 20
