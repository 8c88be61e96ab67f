"""Noise scale that a training measures, against that of its samples' gradients."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import noise_cases
import pytest
import torch
from conftest import SEED, Training, long
from jobs_of_nodes import Spec, want_pairs

from launch.noise_scale.estimate import COST_LIMIT, NoiseScale
from launch.plan import Plan
from launch.reports import StepDone, StepsFinished

FILE = Path(noise_cases.__file__)

PARTS = Plan(strategy="sequential", node_batch=16, micro_batches=4)
PAIR = Plan(strategy="processes", processes=2, replicas=2, node_batch=16)
THREADS = Plan(strategy="threads", threads_per_process=2, replicas=2, node_batch=16)
MIXED = replace(PAIR, micro_batches=2, node_batch=15)
HYBRID = Plan(strategy="hybrid", processes=4, replicas=2, node_batch=16, micro_batches=2)
MEASURED = {
    "micro-batches": PARTS,
    "processes": PAIR,
    "uneven processes with micro-batches": MIXED,
    "threads": THREADS,
}
EVERY_STEP = {"noise_cost_limit": 1.0}


@cache
def truth(case: str) -> float:
    return noise_cases.true_scale(getattr(noise_cases, case)(), SEED)


def measured(training: Training, plan: Plan, case: str, epochs: int = 4) -> NoiseScale:
    training.run(plan, case, epochs=epochs, file=FILE, **EVERY_STEP)
    last = training.reports(StepsFinished)[-1]
    assert last.noise is not None, last.noise_obstacle
    return last.noise


def assert_true(found: NoiseScale, case: str = "Still") -> None:
    """Within the 95 % interval and 15 % more, where one that is twice as high or low is not."""
    assert found.low / 1.15 < truth(case) < 1.15 * found.high, found
    assert found.high < 1.7 * found.low, found


@pytest.mark.parametrize("name", MEASURED)
def test_scale_is_that_of_single_samples_and_told_in_steps(name, training):
    found = measured(training, MEASURED[name], "Still")
    assert found.measurements > 100
    assert found.caveat is None
    assert_true(found)
    told = [step.noise for step in training.reports(StepDone) if step.noise is not None]
    assert len(told) > 100
    counts = [noise.measurements for noise in told]
    assert counts == sorted(counts)


@pytest.mark.long
def test_scale_of_pipelines_side_by_side_is_that_of_single_samples(training_on_four):
    assert_true(measured(training_on_four, HYBRID, "Still"))


def test_scale_is_taken_before_the_norm_is_limited(training):
    assert_true(measured(training, PAIR, "ClippedStill"), "Still")
    assert_true(measured(training, PARTS, "ClippedStill"), "Still")


def test_scale_is_that_of_the_parameters_that_are_trained_now(training):
    """The story: a layer that a step froze ended the training."""
    assert_true(measured(training, PARTS, "WeightsFromTheFirstStepOn"), "WeightsAlone")


def test_parts_count_by_their_weight(training):
    """Samples of weight 0 are none; the rest is scaled by what all weigh."""
    for plan in (replace(MIXED, micro_batches=1), PARTS):
        assert_true(measured(training, plan, "DoubledStill"), "DoubledStill")


def test_pipelines_side_by_side_count_by_their_weight(training_on_four):
    """The story: with weights they were not measured, though each stage knows those of its own."""
    assert_true(measured(training_on_four, HYBRID, "DoubledStill", epochs=6), "DoubledStill")


@pytest.mark.parametrize(
    "name", ["micro-batches", "uneven processes with micro-batches", "threads"]
)
def test_measuring_is_asked_for_and_changes_no_bit_of_the_weights(name, training):
    plain = training.run(MEASURED[name], "Learning", file=FILE)
    (last,) = training.reports(StepsFinished)
    assert last.noise is last.noise_obstacle is None  # nothing was to be measured
    watched = training.run(MEASURED[name], "Learning", file=FILE, **EVERY_STEP)
    assert training.reports(StepsFinished)[-1].noise.measurements > 50
    assert plain.keys() == watched.keys()
    assert all(torch.equal(plain[key], watched[key]) for key in plain)


def test_model_that_normalises_over_the_batch_has_a_caveat(training):
    assert "BatchNorm" in measured(training, PAIR, "Normalised", 1).caveat


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (replace(PARTS, micro_batches=1), "a step has one part"),
        (
            Plan(strategy="pipeline", processes=2, node_batch=16, micro_batches=2),
            "a pipeline adds the gradients of its micro-batches up",
        ),
    ],
)
def test_reason_is_said_where_there_are_no_parts(plan, reason, training):
    training.run(plan, "Still", file=FILE, **EVERY_STEP)
    (last,) = training.reports(StepsFinished)
    assert last.noise is None
    assert reason in last.noise_obstacle


def test_a_share_of_the_time_is_kept_to_by_measuring_fewer_steps(training):
    training.run(PAIR, "Still", file=FILE, epochs=2, noise_cost_limit=COST_LIMIT)
    last = training.reports(StepsFinished)[-1]
    assert 1 <= last.noise.measurements < 40


SMALL = replace(PARTS, node_batch=3, micro_batches=1)
LARGE = replace(SMALL, node_batch=64)
SPECS = {
    "unequal": Spec("Still", [SMALL, replace(MIXED, node_batch=13)], 4, EVERY_STEP, file=FILE),
    "rounded": Spec("Still", [LARGE, LARGE], 1, EVERY_STEP | {"wire": "bf16"}, file=FILE),
    "obstacle": Spec(
        "Still",
        [Plan(strategy="gpu_data", processes=2, replicas=2, node_batch=64), LARGE],
        file=FILE,
    ),
}
want_pairs("noise", SPECS)
LONG = {
    "threads": Spec(
        "Still",
        [replace(THREADS, node_batch=14), replace(SMALL, node_batch=2)],
        4,
        EVERY_STEP,
        file=FILE,
    )
}
want_pairs("noise", LONG, are_long=True)


@pytest.mark.parametrize("name", ["unequal", long("threads")])
def test_scale_of_two_nodes_is_that_of_single_samples(name, trained_pair):
    last = trained_pair("noise", name).of(StepsFinished)[-1]
    assert_true(last.noise)


def test_no_node_measures_where_one_cannot(trained_pair):
    last = trained_pair("noise", "obstacle").of(StepsFinished)[-1]
    assert last.noise is None
    assert last.noise_obstacle


def test_nothing_is_told_from_rounded_sums(trained_pair):
    last = trained_pair("noise", "rounded").of(StepsFinished)[-1]
    assert last.noise is None
    assert last.noise_obstacle == "--wire bf16 rounds what is summed"
