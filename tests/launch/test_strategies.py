"""What every strategy promises, asked of every file in the folder."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tiny_cases
import torch
from torch.utils.data import default_collate

from launch.case_facts import CaseFacts
from launch.data.samples import epoch_batches
from launch.errors import InfeasiblePlanError, InvalidPlanError, UnknownStrategyError
from launch.plan import Plan
from launch.strategies import check_plan, load_strategy, strategy_names, strategy_summaries
from launch.strategies._base import Fixed
from launch.workers.group import explain_failure
from launch.workers.reports import Validated
from probes.hardware import Gpu, Hardware

SEED = 7
TOLERANCE = 1e-4
EVERY = pytest.mark.parametrize("name", strategy_names())


def plans_of(name: str, case: CaseFacts, node: Hardware) -> list[Plan]:
    """Every layout that the strategy would guess first, plain and with its settings turned.

    One for GPUs is asked about imagined ones, for which CPU workers then stand.
    """
    strategy = load_strategy(name)
    if strategy.obstacle(case, node):
        cores = range(node.cpu.usable_cores)
        node = replace(node, gpus=tuple(Gpu(nvml_index=i, cuda_index=i) for i in cores))
    assert strategy.obstacle(case, node) is None
    guessed = [strategy.suggest(Fixed(g), case, node) for g in strategy.first_guesses(case, node)]
    guessed = [replace(plan, devices=("cpu",)) for plan in guessed]
    turned = [replace(plan, micro_batches=2, memory_format="contiguous") for plan in guessed]
    return guessed + turned


def trained_alone(case, node_batch: int, epochs: int = 1) -> dict[str, torch.Tensor]:
    """What one process makes of the same samples in the same order, in the plainest way."""
    torch.manual_seed(SEED)
    model = case.model()
    optimizer = case.optimizer(model.parameters())
    samples = case.dataset(None, train=True)
    for epoch in range(epochs):
        for batch in epoch_batches(len(samples), node_batch, seed=SEED, epoch=epoch):
            inputs, targets = default_collate([samples[index] for index in batch])
            optimizer.zero_grad()
            case.loss(model(inputs), targets).backward()
            optimizer.step()
    return model.state_dict()


def largest_error(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> float:
    """Largest relative difference of any tensor, in the Euclidean norm."""
    assert ours.keys() == theirs.keys()
    return max(((ours[k] - theirs[k]).norm() / theirs[k].norm()).item() for k in ours)


@EVERY
def test_gradients_equal_those_of_one_process(name, training, tiny_facts, two_cores):
    case = tiny_cases.Gradient()
    torch.manual_seed(SEED)
    start = {k: v.clone() for k, v in case.model().state_dict().items()}
    alone = trained_alone(case, node_batch=16)
    expected = {key: start[key] - alone[key] for key in start}
    for plan in plans_of(name, tiny_facts, two_cores):
        weights = training.run(replace(plan, node_batch=16), "Gradient")
        gradients = {key: start[key] - weights[key] for key in start}
        assert largest_error(gradients, expected) < TOLERANCE, plan


@EVERY
def test_gradients_of_alexnet_equal_those_of_one_process(name, training, tiny_facts, two_cores):
    case = tiny_cases.AlexNet()
    torch.manual_seed(SEED)
    start = {k: v.clone() for k, v in case.model().state_dict().items()}
    alone = trained_alone(case, node_batch=8)
    expected = {key: start[key] - alone[key] for key in start}
    plan = replace(plans_of(name, tiny_facts, two_cores)[0], node_batch=8)
    weights = training.run(plan, "AlexNet")
    gradients = {key: start[key] - weights[key] for key in start}
    assert largest_error(gradients, expected) < TOLERANCE


@EVERY
@pytest.mark.parametrize(
    "case", ["Sgd", "AdamW", "Adagrad", "Groups", "WholeTensors", "Tied", "Uneven"]
)
def test_weights_after_twenty_steps_equal_those_of_one_process(
    name, case, training, tiny_facts, two_cores
):
    plan = plans_of(name, tiny_facts, two_cores)[-1]
    plan = replace(plan, node_batch=8, micro_batches=1)
    epochs = 7 if case == "Uneven" else 1
    alone = trained_alone(getattr(tiny_cases, case)(), plan.node_batch, epochs)
    weights = training.run(plan, case, epochs=epochs)
    assert largest_error(weights, alone) < TOLERANCE


@EVERY
@pytest.mark.parametrize("case", ["Sgd", "Adagrad", "WholeTensors", "Uneven"])
def test_weights_of_a_node_of_three_cores_equal_those_of_one_process(
    name, case, training_on_three, tiny_facts, three_cores
):
    """With two parts, one is all but the other; three have a middle, cut at both ends."""
    alone = trained_alone(getattr(tiny_cases, case)(), node_batch=8, epochs=2)
    plans = plans_of(name, tiny_facts, three_cores)
    for plan in [plan for plan in plans if plan.threads == plan.replicas]:
        weights = training_on_three.run(replace(plan, node_batch=8), case, epochs=2)
        assert largest_error(weights, alone) < TOLERANCE, plan


def test_some_strategies_make_three_parts_on_three_cores(tiny_facts, three_cores):
    plans = [plan for name in strategy_names() for plan in plans_of(name, tiny_facts, three_cores)]
    assert {plan.strategy for plan in plans if plan.replicas == 3} >= {"processes", "threads"}


@EVERY
def test_a_plan_fits_the_node_and_divides_the_batch(name, tiny_facts, two_cores):
    for plan in plans_of(name, tiny_facts, two_cores):
        assert plan.strategy == name
        assert plan.threads <= two_cores.cpu.usable_cores
        assert plan.node_batch in (tiny_facts.batch_choices)
        plan.check_fits(two_cores.cpu.usable_cores)


@EVERY
def test_a_strategy_accepts_what_it_guesses(name, tiny_facts, two_cores):
    for plan in plans_of(name, tiny_facts, two_cores):
        check_plan(plan)
        check_plan(replace(plan, devices=plan.devices[:1]))


NONSENSE = [
    {"processes": 3, "replicas": 2, "threads_per_process": 1},
    {"processes": 2, "replicas": 1, "threads_per_process": 1},
    {"processes": 2, "replicas": 2, "threads_per_process": 1, "devices": ("cpu",) * 3},
    {"processes": 1, "replicas": 2, "threads_per_process": 1},
    {"processes": 1, "replicas": 2, "threads_per_process": 3},
    {"processes": 2, "replicas": 2, "threads_per_process": 1, "devices": ("cpu", "cuda:0")},
]


@EVERY
@pytest.mark.parametrize("values", NONSENSE, ids=str)
def test_a_strategy_refuses_a_plan_that_it_would_train_wrongly(name, values):
    """The story: a file with ``sequential`` and two processes was imported, and each of two
    workers trained half of the samples on its own."""
    plan = Plan(strategy=name, node_batch=16, **values)
    with pytest.raises(InvalidPlanError, match=rf"strategy={name}.*: (use|name) "):
        check_plan(plan)


def test_a_plan_of_an_unknown_strategy_is_refused():
    with pytest.raises(UnknownStrategyError, match="did you mean threads"):
        check_plan(Plan(strategy="treads", node_batch=8))


@EVERY
def test_a_worker_refuses_a_plan_that_it_would_train_wrongly(name, training):
    plan = Plan(strategy=name, node_batch=16, processes=2, replicas=1)
    with training.start(training.task("Sgd", plan)) as group:
        failure = explain_failure(group, group.next_event(30))
    assert failure.error == "InvalidPlanError"


@EVERY
def test_a_strategy_that_cannot_run_says_why(name, tiny_facts, two_cores):
    one_core = replace(two_cores, cpu=replace(two_cores.cpu, usable_cores=1))
    strategy = load_strategy(name)
    if reason := strategy.obstacle(tiny_facts, two_cores):
        assert reason.startswith("no usable GPU: ")
        return
    needs_more = all(plan.threads > 1 for plan in plans_of(name, tiny_facts, two_cores))
    obstacle = strategy.obstacle(tiny_facts, one_core) or ""
    assert ("usable_cores=1" in obstacle) == needs_more
    if needs_more:
        guess = strategy.first_guesses(tiny_facts, two_cores)[0]
        with pytest.raises(InfeasiblePlanError, match="usable_cores=1"):
            strategy.suggest(Fixed(guess), tiny_facts, one_core)


@EVERY
def test_a_summary_is_read_from_the_file(name):
    assert len(strategy_summaries()[name]) > 10


@EVERY
def test_validation_judges_the_model_that_is_saved(name, training, tiny_facts, two_cores):
    plan = replace(plans_of(name, tiny_facts, two_cores)[-1], node_batch=8)
    weights = training.run(plan, "Normed")
    case = tiny_cases.Normed()
    model = case.model()
    model.load_state_dict(weights)
    model.eval()
    samples = case.dataset(None, train=False)
    inputs, targets = default_collate([samples[index] for index in range(len(samples))])
    expected = case.loss(model(inputs), targets).item()
    judged = training.reports(Validated)
    mean = sum(part.loss_sum for part in judged) / sum(part.samples for part in judged)
    assert mean == pytest.approx(expected, rel=1e-4)


@EVERY
def test_rest_of_an_epoch_leaves_no_single_sample_to_a_normalising_layer(
    name, training, tiny_facts, two_cores
):
    plan = replace(plans_of(name, tiny_facts, two_cores)[-1], node_batch=16)
    training.run(plan, "NormedRest")
