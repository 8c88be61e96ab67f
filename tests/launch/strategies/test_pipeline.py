"""Stages of pipelines: what they compute together, whatever the schedule, cut and precision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import hidden_cases
import pytest
import tiny_cases
import torch
from conftest import SEED, long
from one_process import error_of, largest_error, trained_alone
from strategy_homes import guessed

from launch.errors import InvalidPlanError
from launch.plan import Plan
from launch.reports import StepDone, StrategyPrepared
from launch.strategies import check_plan, load_strategy
from launch.workload import Workload

HIDDEN = Path(hidden_cases.__file__)

TWO = Plan(
    strategy="pipeline", node_batch=8, processes=2, micro_batches=4, memory_format="channels_last"
)
THREE = replace(TWO, processes=3)
PAIRS = replace(TWO, strategy="hybrid", processes=4, replicas=2, micro_batches=2)
ANY = pytest.mark.parametrize(
    "plan", [TWO, pytest.param(PAIRS, marks=pytest.mark.long)], ids=["pipeline", "hybrid"]
)


def with_options(plan: Plan, **options: str) -> Plan:
    return replace(plan, options={**plan.options, **options})


@pytest.mark.parametrize("case", ["Uneven", "Tied"])
@ANY
def test_gpipe_trains_as_one_process_too(plan, case, training_on_four):
    """1F1B is the schedule of all other plans, here and in test_strategies.py."""
    plan = with_options(plan, schedule="gpipe")
    assert error_of(training_on_four, plan, case, epochs=2) < 1e-4


@pytest.mark.parametrize("cut", ["1", "4", "7"])
def test_every_cut_trains_as_one_process_and_is_not_timed(cut, training, tmp_path):
    assert error_of(training, with_options(TWO, cut=cut), "Sgd") < 1e-4
    (said,) = training.reports(StrategyPrepared)
    assert said.facts["cut"] == [int(cut)]
    assert said.facts["layer_times_s"] is said.facts["stage_times_s"] is None
    if cut == "4":
        log = (tmp_path / "worker0.log").read_text()
        assert "stage 0: layers 0 to 3; stage 1: layers 4 to 7\n" in log


def test_a_stage_in_the_middle_trains_as_one_process(training_on_three):
    assert error_of(training_on_three, with_options(THREE, cut="2,5"), "Sgd") < 1e-4


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 3, reason="fewer than three GPUs")
def test_a_stage_in_the_middle_waits_for_the_weight_of_its_step(training_on_three):
    """The story: its GPU waited for activations, but its worker read the weight at once, when the
    first stage had not written it."""
    plan = replace(with_options(THREE, cut="2,5"), devices=("cuda:0", "cuda:1", "cuda:2"))
    # cuDNN's convolutions round to TF32.
    assert error_of(training_on_three, plan, "IgnoredLabels", epochs=2) < 1e-2


@ANY
def test_rounded_activations_cross_the_wire(plan, training_on_four):
    plan = replace(plan, node_batch=16, precision="bf16")
    assert 1e-6 < error_of(training_on_four, plan, "Gradient") < 0.02


@pytest.mark.parametrize(
    "case", ["Uneven", "SparseSteps", *map(long, ["Sparse", "Clipped", "Scheduled", "DecayedRest"])]
)
def test_replicas_with_parameters_of_their_own_train_as_one_process(case, training_on_four):
    """As on GPUs. The story: an optimizer got the sum of sparse gradients as a dense one, which
    some refuse and others take in another way."""
    plan = with_options(PAIRS, average="all_reduce")
    assert error_of(training_on_four, plan, case, epochs=2) < 1e-4


class ClippedDense(tiny_cases.ClippedSparse):
    """The same with rows whose gradient is dense."""

    def model(self):
        model = super().model()
        model[1].sparse = False
        return model


def test_sparse_gradients_of_a_stage_are_clipped_as_dense_ones(training):
    alone = trained_alone(ClippedDense(), TWO.node_batch)
    weights = training.run(with_options(TWO, cut="2"), "ClippedSparse")
    assert largest_error(weights, alone) < 1e-4


@ANY
def test_the_reported_loss_is_that_of_the_whole_batch(plan, training_on_four):
    training_on_four.run(replace(plan, node_batch=16), "Gradient")
    case = tiny_cases.Gradient()
    torch.manual_seed(7)
    samples = case.dataset(None, train=True)
    inputs = torch.stack([samples[index][0] for index in range(16)])
    targets = torch.tensor([samples[index][1] for index in range(16)])
    expected = case.loss(case.model()(inputs), targets).item()
    (step,) = training_on_four.reports(StepDone)
    assert step.loss == pytest.approx(expected, rel=1e-5)


def test_a_measured_cut_is_reported_with_its_times(training, tmp_path):
    training.run(with_options(TWO, cut="measured"), "Sgd")
    (said,) = training.reports(StrategyPrepared)
    assert len(said.facts["stage_times_s"]) == 2
    assert sum(said.facts["layer_times_s"]) == pytest.approx(sum(said.facts["stage_times_s"]))
    assert min(said.facts["layer_times_s"]) > 0
    assert said.facts["layers"][0] == "Conv2d"
    assert " ms" in (tmp_path / "worker0.log").read_text()


def test_a_model_without_layers_is_a_fault_of_the_use_case(training):
    failure = training.failure_of("NoLayers", TWO)
    assert failure.message.startswith("UseCaseError: the use case gives no layers(): ")


def test_a_stage_of_which_the_optimizer_trains_nothing_is_a_fault_of_the_plan(training):
    """The story: it ended in torch's "optimizer got an empty parameter list"."""
    failure = training.failure_of("ConvolutionsAlone", with_options(TWO, cut="4"))
    assert failure.message.startswith(
        "InvalidPlanError: strategy=pipeline and a stage of layers 4 to 7, of which optimizer(par"
    )


@pytest.mark.parametrize("case", ["DetachFromInitInStages", "DetachKeptInStages"])
@ANY
def test_a_model_that_keeps_the_memory_of_a_parameter_is_refused(plan, case, training_on_four):
    """What it keeps had the first values for ever, since another worker makes the updates."""
    workload = Workload(use_case=f"{HIDDEN}:{case}", seed=SEED)
    failure = training_on_four.failure_of(case, plan, workload=workload)
    assert failure.message.startswith(
        f"InvalidPlanError: strategy={plan.strategy} and a model that keeps a tensor in the memory"
    )


@ANY
def test_a_model_that_keeps_a_copy_of_a_parameter_trains_as_one_process(plan, training_on_four):
    assert error_of(training_on_four, plan, "CloneKeptInStages", cases=hidden_cases) < 1e-4


def test_targets_that_cannot_be_sent_are_a_fault_of_the_use_case(training):
    failure = training.failure_of("OpaqueTargets", TWO)
    assert failure.message.startswith("UseCaseError: targets hold a bytes, ")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"options": {"schedule": "zigzag"}}, "schedule='zigzag': use 1f1b or gpipe"),
        ({"options": {"average": "shared"}}, "replicas=1, .* options average: use schedule, cut"),
        ({"options": {"speed": "high"}}, "options speed: use schedule, cut, wait_policy"),
        ({"options": {"wait_policy": "asleep"}}, "choose one of default, active, passive"),
        (
            {"options": {"wait_policy": "active"}, "devices": ("cuda:0", "cuda:1")},
            "options wait_policy: use schedule, cut$",
        ),
        ({"options": {"cut": "1,2"}}, "cut=1,2 and stages=2: name 1 layers"),
        ({"options": {"cut": "half"}}, "cut='half': use measured"),
        ({"micro_batches": 1}, "schedule=1f1b, micro_batches=1 and stages=2: use at least"),
        ({"processes": 1}, "processes=1 and replicas=1: use a multiple"),
        ({"compile": True}, "compile=True: use compile=False"),
        ({"devices": ("cuda:0", "cuda:0")}, "devices=cuda:0,cuda:0: name 2 different GPUs"),
    ],
)
def test_a_plan_that_stages_cannot_run_is_refused(changes, reason):
    with pytest.raises(InvalidPlanError, match=reason):
        check_plan(replace(TWO, **changes))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"options": {"average": "none"}}, "average='none': use shared or all_reduce"),
        ({"options": {"speed": "high"}}, "options speed: use schedule, cut, average"),
        (
            {"options": {"average": "shared"}, "devices": tuple(f"cuda:{i}" for i in range(4))},
            "devices=cuda:0,cuda:1,cuda:2,cuda:3 and options average: use schedule, cut",
        ),
    ],
)
def test_only_replicas_on_cpus_choose_how_they_average(changes, reason):
    with pytest.raises(InvalidPlanError, match=reason):
        check_plan(replace(PAIRS, **changes))


def test_one_replica_is_a_pipeline_and_not_a_hybrid():
    with pytest.raises(InvalidPlanError, match="replicas=1: use at least 2, or pipeline"):
        check_plan(replace(TWO, strategy="hybrid"))


@pytest.mark.parametrize("name", ["pipeline", "hybrid"])
def test_a_model_that_cannot_be_cut_says_so(name, tiny_facts, gpu_node):
    facts = replace(tiny_facts, max_stages=1)
    obstacle = load_strategy(name).obstacle(facts, gpu_node)
    assert obstacle.startswith(
        "the model cannot be cut into stages: the use case gives no layers(), or one of them has "
    )


def test_gpus_are_taken_where_there_are_enough(tiny_facts, gpu_node, two_cores):
    def first(name, node):
        return guessed(name, tiny_facts, node)[0]

    three_gpus = replace(gpu_node, gpus=gpu_node.gpus[:3])
    assert first("pipeline", three_gpus).devices == ("cuda:0", "cuda:1", "cuda:2")
    assert first("hybrid", three_gpus).devices == ("cpu",)
    assert first("hybrid", gpu_node).devices == ("cuda:0", "cuda:1", "cuda:2", "cuda:3")
    assert first("pipeline", two_cores).devices == ("cpu",)


@pytest.mark.parametrize(
    ("name", "cores", "max_stages", "parts"),
    [
        ("pipeline", 3, 2, (1, 2, 1)),
        ("pipeline", 3, 8, (1, 3, 1)),
        ("pipeline", 7, 2, (1, 2, 3)),
        ("hybrid", 4, 8, (2, 2, 1)),
        ("hybrid", 5, 8, (2, 2, 1)),
        ("hybrid", 7, 8, (3, 2, 1)),
        ("hybrid", 7, 2, (3, 2, 1)),
    ],
)
def test_some_cores_stay_idle_where_all_of_them_make_no_pipelines(
    name, cores, max_stages, parts, tiny_facts, two_cores
):
    case = replace(tiny_facts, max_stages=max_stages)
    node = replace(two_cores, cpu=replace(two_cores.cpu, usable_cores=cores))
    plan = guessed(name, case, node)[0]
    stages = plan.processes // plan.replicas
    assert (plan.replicas, stages, plan.threads_per_process) == parts


def test_every_worker_needs_a_core_even_if_it_has_a_gpu(tiny_facts, gpu_node):
    node = replace(gpu_node, cpu=replace(gpu_node.cpu, usable_cores=2))
    obstacle = load_strategy("hybrid").obstacle(tiny_facts, node)
    assert obstacle == "usable_cores=2: at least 4 workers are needed, each with a core"
    assert load_strategy("pipeline").obstacle(tiny_facts, node) is None
