"""What every strategy promises, asked of every file in the folder."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from random import Random

import pytest
import tiny_cases
import torch
from conftest import long
from described_cases import described
from one_process import TOLERANCE, error_of, gradient_error, largest_error, start_of, trained_alone
from optuna.trial import FixedTrial
from strategy_homes import EACH_KIND, EVERY, KINDS, guessed, plans_of
from worker_groups import wait_until_gone

from launch.errors import InvalidPlanError, UnknownStrategyError
from launch.plan import Plan
from launch.reports import Described, StepDone, Validated
from launch.strategies import check_plan, load_strategy, strategy_names
from launch.strategies._gpus import usable_gpus, why_no_gpu
from launch.workers.group import explain_failure

TF32_TOLERANCE = 2e-2
END_LIMIT_S = 60
"""From a worker's last step until nothing of its group is left. Far more than that takes, as a CI
machine may be slow: where nothing ends those that wait for a lost worker, they wait for ever."""


@pytest.fixture
def gpu_plans(name, this_node, tiny_facts) -> list[Plan]:
    """What the strategy would guess first on the GPUs of this machine."""
    strategy = load_strategy(name)
    if reason := why_no_gpu(this_node) or strategy.obstacle(tiny_facts, this_node):
        pytest.skip(reason)
    plans = guessed(name, tiny_facts, this_node)
    on_gpus = [plan for plan in plans if "cpu" not in plan.devices]
    if not on_gpus:
        pytest.skip(f"usable GPUs: {len(usable_gpus(this_node))}: {name} uses none of them")
    return on_gpus


@EVERY
def test_gradients_equal_those_of_one_process(home):
    """The story: with class weights, weights were 22 to 63 % off after an epoch, by the plan."""
    for plan in home.plans():
        weights = home.training.run(replace(plan, node_batch=16), "WeightedGradient")
        assert gradient_error(weights, tiny_cases.WeightedGradient(), 16) < TOLERANCE, plan


@EACH_KIND
def test_gradients_that_are_accumulated_equal_those_of_the_whole_batch(home):
    """Fifteen samples in as many micro-batches as there can be, most of which have no label."""
    plan = home.plans()[-1]
    plan = replace(plan, node_batch=15, micro_batches=15 // plan.replicas)
    weights = home.training.run(plan, "LabelGradient")
    assert gradient_error(weights, tiny_cases.LabelGradient(), 15) < TOLERANCE


@EACH_KIND
def test_a_step_without_anything_that_counts_changes_nothing(home):
    weights = home.training.run(replace(home.plans()[-1], node_batch=8), "NoLabels")
    assert largest_error(weights, start_of(tiny_cases.NoLabels())) == 0
    assert {report.loss for report in home.training.reports(StepDone)} == {0.0}


@EACH_KIND
def test_a_loss_in_float64_is_reported_in_float64(home):
    """The story: its parts were added up in float32."""
    home.training.run(replace(home.plans()[-1], node_batch=16), "Third")
    (step,) = home.training.reports(StepDone)
    assert step.loss == pytest.approx(1 / 3, rel=1e-12)


@EACH_KIND
def test_a_step_of_ones_own_trains_as_in_one_process_or_is_refused(home):
    plan = replace(home.plans()[-1], node_batch=8)
    (facts,) = [report.facts for report in described("PaddedText") if isinstance(report, Described)]
    if load_strategy(home.name).obstacle(replace(facts, batch_choices=(8,)), home.node) is None:
        assert error_of(home.training, plan, "PaddedText") < TOLERANCE
        return
    failure = home.training.failure_of("PaddedText", plan)
    assert "has a step() of its own, which cannot be cut into stages: " in failure.message


@pytest.mark.parametrize("name", [*KINDS, "gpu_data"])
@pytest.mark.long
def test_gradients_of_alexnet_equal_those_of_one_process(home):
    plan = replace(home.plans()[0], node_batch=8, micro_batches=2)
    weights = home.training.run(plan, "AlexNet")
    # In float64: torch 2.14 makes an error of 0.002 in the first layer's gradient of contiguous
    # pictures in float32, and none of channels_last.
    assert gradient_error(weights, tiny_cases.AlexNet(), 8, torch.float64) < TOLERANCE


@EACH_KIND
@pytest.mark.parametrize(
    "case",
    [
        *["Scheduled", "Uneven", "ClippedGroups", "NestedTargets"],
        *["GlobalNorm", "ClippedLabels"],
        *map(long, ["Adagrad", "Tied", "WholeTensors", "ClippedWholeTensors", "OneCycle"]),
        long("ClassWeights"),
        *map(long, ["IgnoredLabels", "WeightedGlobalNorm", "LongSchedule"]),
    ],
)
def test_weights_after_twenty_steps_equal_those_of_one_process(case, home):
    plan = replace(home.plans()[-1], node_batch=8)
    epochs = 7 if case == "Uneven" else 1
    assert error_of(home.training, plan, case, epochs=epochs) < TOLERANCE


@pytest.mark.parametrize("name", [*KINDS, "sequential"])
def test_the_norm_is_that_of_all_gradients_of_a_step_whatever_the_optimizer_trains(home):
    """The story: those of what it does not train were added up from step to step, and in a pipeline
    they did not count."""
    plan = replace(home.plans()[-1], node_batch=8)
    assert error_of(home.training, plan, "ClippedBiases") < TOLERANCE


@EACH_KIND
@pytest.mark.parametrize("case", ["Scheduled", *map(long, ["ClippedGroups", "Adagrad", "Tied"])])
def test_a_fused_optimizer_gives_the_weights_of_the_plain_one(case, home):
    """One that does not exist is refused where it is made: test_optimizer.py."""
    plan = replace(home.plans()[-1], node_batch=8, fused_optimizer=True)
    assert error_of(home.training, plan, case) < TOLERANCE


@EVERY
@pytest.mark.gpu
@pytest.mark.parametrize("case", ["Sgd", "AdamW", "Tied", "Uneven"])
def test_weights_after_twenty_steps_on_gpus_are_close_to_those_of_a_cpu(
    case, gpu_plans, training_on, this_node
):
    """Not equal: by default torch rounds the factors of a convolution to TF32 on a GPU."""
    for plan in gpu_plans:
        plan = replace(plan, node_batch=max(8, plan.replicas * plan.micro_batches))
        assert error_of(training_on(this_node), plan, case) < TF32_TOLERANCE, plan


@EVERY
@pytest.mark.parametrize("case", ["Adagrad", "WholeTensors", "Uneven", "Scheduled"])
@pytest.mark.long
def test_weights_of_a_node_of_three_cores_equal_those_of_one_process(
    name, case, training_on_three, tiny_facts, three_cores
):
    """With two parts, one is all but the other; three have a middle, cut at both ends."""
    if reason := load_strategy(name).obstacle(tiny_facts, three_cores):
        pytest.skip(reason)
    plans = plans_of(name, tiny_facts, three_cores)
    for plan in [plan for plan in plans if plan.threads == max(plan.processes, plan.replicas)]:
        error = error_of(training_on_three, replace(plan, node_batch=8), case, epochs=2)
        assert error < TOLERANCE, plan


def test_some_strategies_make_three_parts_on_three_cores(tiny_facts, three_cores):
    able = [n for n in strategy_names() if not load_strategy(n).obstacle(tiny_facts, three_cores)]
    plans = [plan for name in able for plan in plans_of(name, tiny_facts, three_cores)]
    of_three = {plan.strategy for plan in plans if max(plan.processes, plan.replicas) == 3}
    assert of_three >= {"pipeline", "processes", "threads"}


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


def test_a_worker_refuses_a_plan_that_it_would_train_wrongly(training):
    plan = Plan(strategy="sequential", node_batch=16, processes=2, replicas=1)
    failure = training.failure_of("Sgd", plan)
    assert failure.error == "InvalidPlanError"


@EVERY
def test_a_strategy_that_cannot_run_says_why(home, two_cores):
    strategy = load_strategy(home.name)
    one_core = replace(two_cores, cpu=replace(two_cores.cpu, usable_cores=1))
    if all(plan.threads == 1 for plan in home.plans()):
        assert strategy.obstacle(home.facts, one_core) is None
        return
    obstacle = strategy.obstacle(home.facts, one_core)
    assert re.match(r"usable_cores=1|no usable GPU: ", obstacle)


class SeedSource:
    """Draws at random."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def suggest_categorical(self, _: str, choices):
        return self._random.choice(choices)


@EVERY
@pytest.mark.parametrize("max_stages", [1, 2, 3, 8])
@pytest.mark.parametrize("gpus", [0, 2, 4])
def test_a_strategy_that_names_no_obstacle_has_plans_that_fit(
    name, max_stages, gpus, tiny_facts, gpu_node
):
    """The story: a search on a node of five cores ended with an IndexError. Five is a prime number,
    so that all of them could be parted into one pipeline, but not into two."""
    strategy = load_strategy(name)
    case = replace(tiny_facts, max_stages=max_stages, batch_choices=(64, 128))
    for cores in range(1, 17):
        cpu = replace(gpu_node.cpu, usable_cores=cores)
        node = replace(gpu_node, cpu=cpu, gpus=gpu_node.gpus[:gpus])
        if strategy.obstacle(case, node) is not None:
            continue
        guesses = strategy.first_guesses(case, node)
        assert guesses
        for draws in (*map(FixedTrial, guesses), *map(SeedSource, range(8))):
            plan = strategy.suggest(draws, case, node)
            assert plan.strategy == name
            assert plan.node_batch in (64, 128)
            check_plan(plan)
            plan.check_fits(cores)
            assert len(set(plan.devices) - {"cpu"}) <= gpus


@EVERY
def test_a_strategy_says_whether_its_plans_use_gpus_and_whether_a_cpu(name, tiny_facts, nodes):
    strategy = load_strategy(name)
    for node in nodes:
        if strategy.obstacle(tiny_facts, node) is None:
            plans = guessed(name, tiny_facts, node)
            assert strategy.uses_gpus(node) is any(plan.gpus for plan in plans)
            assert strategy.uses_cpu(node) is any("cpu" in plan.devices for plan in plans)


def judged_and_expected(
    training, weights: dict[str, torch.Tensor], name: str
) -> tuple[float, float]:
    """What the workers say of the model that they have trained, and what its weights say."""
    case = getattr(tiny_cases, name)()
    model = case.model()
    model.load_state_dict(weights)
    model.eval()
    samples = case.dataset(None, train=False)
    batch = case.collate([samples[index] for index in range(len(samples))])
    expected = case.step(model, batch).item()
    judged = training.reports(Validated)
    mean = sum(part.loss_sum for part in judged) / sum(part.weight for part in judged)
    return mean, expected


@EACH_KIND
@pytest.mark.parametrize("case", ["Normed", "TokenMean"])
def test_validation_judges_the_model_that_is_saved(case, home):
    plan = replace(home.plans()[-1], node_batch=8)
    weights = home.training.run(plan, case)
    mean, expected = judged_and_expected(home.training, weights, case)
    assert mean == pytest.approx(expected, rel=1e-4)
    if case == "TokenMean":  # the other one normalises over a part of the batch
        assert largest_error(weights, trained_alone(tiny_cases.TokenMean(), 8)) < TOLERANCE


@EVERY
@pytest.mark.gpu
def test_validation_on_gpus_judges_the_model_that_is_saved(gpu_plans, training_on, this_node):
    for plan in gpu_plans:
        plan = replace(plan, node_batch=max(8, plan.replicas * plan.micro_batches))
        training = training_on(this_node)
        mean, expected = judged_and_expected(training, training.run(plan, "Normed"), "Normed")
        assert mean == pytest.approx(expected, rel=TF32_TOLERANCE), plan


@EACH_KIND
def test_rest_of_an_epoch_leaves_no_single_sample_to_a_normalising_layer(home):
    plan = replace(home.plans()[-1], node_batch=16)
    home.training.run(plan, "NormedRest")


FAILURES = {
    "RaisesOnce": "ArithmeticError: the loss is beyond me",
    "RaisesInLayer": "ArithmeticError: the layer is beyond me",
    "ExitsOnce": "exit code 3",
    "DiesOnce": "killed by signal 9 (SIGKILL)",
}


@pytest.mark.parametrize(
    ("case", "name"),
    [
        *(("RaisesOnce", name) for name in strategy_names()),
        *(("DiesOnce", name) for name in KINDS),
        *(
            pytest.param("DiesOnce", name, marks=pytest.mark.long)
            for name in strategy_names()
            if name not in KINDS
        ),
        *(
            (case, name)
            for case in ("RaisesInLayer", "ExitsOnce")
            for name in ("pipeline", "threads")
        ),
    ],
)
def test_a_worker_that_fails_in_a_step_ends_the_group_with_its_own_message(case, home):
    """Those that wait for it fail too, or wait for ever: a consequence, not the cause."""
    plan = replace(home.plans()[-1], node_batch=8)
    failure, stepped_s = None, time.monotonic()
    with home.training.start(home.training.task(case, plan)) as group:
        pids = group.pids
        while failure is None and (event := group.next_event(60)):
            failure = explain_failure(group, event)
            if isinstance(getattr(event, "report", None), StepDone):
                stepped_s = time.monotonic()
    wait_until_gone(pids)
    assert failure.message.startswith(FAILURES[case]), failure.log_tail
    assert time.monotonic() - stepped_s < END_LIMIT_S


@EACH_KIND
def test_a_worker_that_dies_while_others_build_is_the_one_that_is_named(home):
    """Others may be connected to it by then, and hear of its end from gloo: a consequence."""
    plan = replace(home.plans()[-1], node_batch=8)
    failure = home.training.failure_of("DiesWhileBuilding", plan)
    assert failure.message == "killed by signal 9 (SIGKILL)", failure.log_tail
    assert failure.signal == 9
