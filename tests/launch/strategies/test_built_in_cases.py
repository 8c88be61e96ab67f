"""Built-in use cases train with every strategy that their layers allow, as one process would."""

from dataclasses import replace
from pathlib import Path

import built_in_cases
import pytest
from one_process import gradient_error
from strategy_homes import EACH_KIND, EVERY, KINDS

from launch.reports import StepDone

CASES = Path(built_in_cases.__file__)
TOLERANCE = 1e-3
"""In float32, through 44 layers."""


def assert_gradients_are_those_of_one_process(case: str, home) -> None:
    plan = replace(home.plans()[-1], node_batch=16)
    weights = home.training.run(plan, case, file=CASES)
    assert gradient_error(weights, getattr(built_in_cases, case)(), 16) < TOLERANCE


@EACH_KIND
@pytest.mark.parametrize("case", ["Cnn", "SmallTransformer", "Folder"])
def test_gradients_equal_those_of_one_process(case, home):
    if case == "Folder":
        built_in_cases.make_pictures()
    assert_gradients_are_those_of_one_process(case, home)


# A training of these takes ten seconds. With every strategy, the gradients of one are asked for;
# with stages, whose layers are those of the model, both of both.


@EVERY
@pytest.mark.long
def test_gradients_of_44_layers_equal_those_of_one_process(home):
    assert_gradients_are_those_of_one_process("Resnet44Alone", home)


@pytest.mark.parametrize("name", ["pipeline"])
@pytest.mark.long
def test_gradients_of_18_layers_equal_those_of_one_process(home):
    assert_gradients_are_those_of_one_process("Resnet18Alone", home)


@pytest.mark.parametrize(
    ("case", "name"),
    [("Resnet44", "pipeline"), *(("Resnet18", name) for name in (*KINDS, "gpu_data"))],
)
@pytest.mark.long
def test_network_with_batch_norm_runs(case, home):
    home.training.run(replace(home.plans()[-1], node_batch=16), case, file=CASES)
    (step,) = home.training.reports(StepDone)
    assert 0 < step.loss < 20
