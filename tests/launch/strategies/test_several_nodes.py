"""Several nodes of one job: each with a plan and a share of its own, and one model in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
import tiny_cases
from conftest import long
from jobs_of_nodes import Spec, Trained, TrainedApart, want_apart, want_pairs
from node_plans import ALONE, DDP, HYBRID, PAIR, PIPELINE, REDUCED, THREADS, TURNED
from one_process import TOLERANCE, error_of_job, gradient_error

from launch.plan import MEMORY_FORMATS, Plan
from launch.reports import GradientsSynced, SharesChanged
from launch.shares import NodeLimits, StepTime

ROUNDED_TOLERANCE = 5e-2


MIXES = {
    "equal": [ALONE, ALONE],
    "unequal": [replace(ALONE, node_batch=2), PAIR],
    "threads and stages": [THREADS, PIPELINE],
    "grids": [HYBRID, REDUCED],
    "copies": [DDP, ALONE, TURNED],
    "four": [PAIR, ALONE, THREADS, PIPELINE],
}
CASES = ["Groups", "WholeTensors", "Tied", "Uneven", "Scheduled", "Sparse"]
CASES += ["ClassWeights", "ClippedLabels", "PaddedText"]
WEIGHTED = {
    f"{case} of {mix}": Spec(case, plans)
    for case, mix in [
        ("TokenMean", "threads and stages"),
        ("IgnoredLabels", "grids"),
        ("GlobalNorm", "threads and stages"),
        ("ClassWeights", "copies"),
    ]
    for plans in [MIXES[mix]]
}
UNEQUAL = [replace(ALONE, node_batch=2), TURNED]
BELIEVED = StepTime(fixed_s=0.0, per_sample_s=0.001)
"""Of both nodes alike, which is wrong."""


def one_is_slow(plan: Plan) -> Spec:
    plans = [replace(plan, node_batch=8, memory_format=form) for form in MEMORY_FORMATS]
    return Spec("SlowInChannelsLast", plans, 4, step_time=BELIEVED)


SLOW = {
    "one is slow": one_is_slow(ALONE),
    "a pair is slow": one_is_slow(PAIR),
    "a pipeline is slow": one_is_slow(PIPELINE),
}
SPECS = {
    **{mix: Spec("Gradient", plans) for mix, plans in MIXES.items()},
    **{case: Spec(case, UNEQUAL, 3 if case == "Uneven" else 1) for case in CASES},
    **SLOW,
    **WEIGHTED,
    "rounded": Spec("Sgd", UNEQUAL, 2, {"wire": "bf16"}),
    "rounded and clipped": Spec("Clipped", [PAIR, TURNED], 2, {"wire": "bf16"}),
    "rests": Spec("Rests", [replace(ALONE, node_batch=8)] * 2, 36, step_time=BELIEVED),
}


LONG = {name for name, spec in SPECS.items() if len(spec.plans) > 2}
LONG |= {"a pair is slow", "a pipeline is slow", "grids", "rounded and clipped"}
LONG |= {"Tied", "Scheduled", "Sparse", "ClassWeights", "ClippedLabels"}
LONG |= {"IgnoredLabels of grids", "GlobalNorm of threads and stages"}
OF_TWO = {name: spec for name, spec in SPECS.items() if len(spec.plans) == 2}
for are_long in (False, True):
    wanted = {name: spec for name, spec in OF_TWO.items() if (name in LONG) is are_long}
    want_pairs("several nodes", wanted, are_long=are_long)
# Beside those of tests/launch/checkpoints: each start loads torch once for every node.
want_apart({f"{name} nodes": spec for name, spec in SPECS.items() if name not in OF_TWO})


def names(chosen: Iterable[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", [long(one) if one in LONG else one for one in chosen])


@pytest.fixture
def trained(
    trained_pair: Callable[[str, str], Trained], trained_apart: Callable[[int], TrainedApart]
) -> Callable[[str], Trained]:
    """Give a job's outcome. All jobs of as many nodes run one after the other."""

    def find(name: str) -> Trained:
        if name in OF_TWO:
            return trained_pair("several nodes", name)
        return trained_apart(len(SPECS[name].plans)).jobs[f"{name} nodes"]

    return find


@names(MIXES)
def test_gradients_of_several_nodes_equal_those_of_one_process_on_all_samples(name, trained):
    weights = trained(name).weights
    error = gradient_error(weights, tiny_cases.Gradient(), SPECS[name].global_batch)
    assert error < TOLERANCE


@names(CASES)
def test_weights_of_unequal_nodes_equal_those_of_one_process(name, trained):
    assert error_of_job(SPECS[name], trained(name)) < TOLERANCE


@names(WEIGHTED)
def test_what_a_loss_is_a_mean_over_counts_in_every_strategy_of_several_nodes(name, trained):
    assert error_of_job(SPECS[name], trained(name)) < TOLERANCE


@names(SLOW)
def test_a_slow_node_is_given_less_and_every_step_has_the_same_samples_as_before(name, trained):
    done = trained(name)
    changes = done.of(SharesChanged)
    assert changes, "the shares stayed as they were"
    fast, slow = changes[0].node_batches
    assert fast + slow == 16
    assert fast > slow
    assert fast % NodeLimits.of_plan(SPECS[name].plans[0]).multiple == 0
    assert error_of_job(SPECS[name], done) < TOLERANCE


def test_shares_are_not_judged_by_the_rests_of_epochs(trained):
    """The story: of epochs with one full step, the first, and a rest, the rests alone were looked
    at; a node without a sample in them was so quick that it got nearly all."""
    done = trained("rests")
    assert done.of(GradientsSynced)
    assert not done.of(SharesChanged)


def test_bytes_on_the_network_are_counted_and_half_as_many_where_they_are_rounded(trained):
    sent = {
        name: sum(report.sent_bytes for report in trained(name).of(GradientsSynced))
        / sum(report.steps for report in trained(name).of(GradientsSynced))
        for name in ("rounded", "Groups")
    }
    parameters = sum(value.numel() for value in tiny_cases.Sgd().model().state_dict().values())
    assert sent["Groups"] == pytest.approx(4 * parameters, rel=0.01)
    assert sent["rounded"] == pytest.approx(2 * parameters, rel=0.01)


@names(["rounded", "rounded and clipped"])
def test_rounded_gradients_lead_to_nearly_the_same_weights(name, trained):
    assert error_of_job(SPECS[name], trained(name)) < ROUNDED_TOLERANCE
