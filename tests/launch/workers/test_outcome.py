"""What a training leaves: weights that are numbers, the best ones too, or a reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import tiny_cases
import torch
from conftest import Training
from one_process import largest_error, trained_alone

from launch.checkpoints.folder import list_checkpoints
from launch.checkpoints.weights import load_weights
from launch.job import CheckpointConfig
from launch.plan import Plan
from launch.reports import BestWeightsSaved, StepDone, StepsFinished, Warned
from launch.workers.group import WorkerFailure, explain_failure
from launch.workers.task import Purpose, Task

ALONE = Plan(strategy="sequential", node_batch=8)
PAIR = Plan(strategy="processes", node_batch=8, processes=2, replicas=2)
STAGES = Plan(strategy="pipeline", node_batch=8, processes=2, micro_batches=2)
EVERY_PLAN = pytest.mark.parametrize("plan", [ALONE, PAIR, STAGES], ids=lambda plan: plan.strategy)


def task_of(training: Training, case: str, plan: Plan, folder: Path, **changes: object) -> Task:
    weights = str(folder / "weights.safetensors")
    return training.task(case, plan, purpose=Purpose.TRAIN, weights=weights, **changes)


def failure_of(training: Training, task: Task) -> WorkerFailure:
    """Run workers until one fails."""
    with training.start(task) as group:
        while event := group.next_event():
            training.events.append(event)
            if failure := explain_failure(group, event):
                return failure
    raise AssertionError("no worker failed")


def run(training: Training, task: Task) -> None:
    with training.start(task) as group:
        while event := group.next_event():
            assert explain_failure(group, event) is None, event
            training.events.append(event)


@pytest.mark.parametrize("plan", [ALONE, PAIR], ids=lambda plan: plan.strategy)
def test_training_stops_at_the_first_loss_that_is_not_a_number(plan, training, tmp_path):
    """The story: three epochs of NaN were trained, and their weights stored, without an error."""
    kept = tmp_path / "kept"
    task = task_of(
        training, "Diverges", plan, tmp_path, checkpoint=CheckpointConfig(folder=str(kept))
    )
    failure = failure_of(training, task)
    assert failure.error == "NotFiniteError"
    assert failure.message == "NotFiniteError: the training loss of step 13 (epoch 1) is nan"
    assert len(training.reports(StepDone)) in (12, 13)  # another worker may be heard first
    assert not (tmp_path / "weights.safetensors").exists()
    assert list_checkpoints(kept) == []


@pytest.mark.parametrize("plan", [ALONE, PAIR], ids=lambda plan: plan.strategy)
def test_training_stops_where_a_parameter_is_trained_that_was_frozen_at_first(
    plan, training, tmp_path
):
    """The story: one process trained it, and several left it as it was, without a word."""
    failure = failure_of(training, task_of(training, "Thaws", plan, tmp_path))
    assert failure.message == (
        "UseCaseError: parameter '0.bias' was frozen before the first step, and no longer is after "
        "step 3: train it from the start, with a learning rate of 0 until then"
    )


def test_who_allows_it_trains_on(training, tmp_path):
    run(training, task_of(training, "Diverges", ALONE, tmp_path, allow_nan=True))
    assert len(training.reports(StepDone)) == 20
    assert (tmp_path / "weights.safetensors").exists()


@pytest.mark.parametrize("is_kept", [True, False])
def test_update_that_leaves_no_numbers_is_found_though_every_loss_was_one(
    is_kept, training, tmp_path
):
    kept = tmp_path / "kept"
    folder = str(kept) if is_kept else None
    task = task_of(
        training, "DivergesAtLast", ALONE, tmp_path, checkpoint=CheckpointConfig(folder=folder)
    )
    failure = failure_of(training, task)
    assert (
        failure.message == "NotFiniteError: parameter '0.weight' is NaN or infinite after step 20"
    )
    assert not (tmp_path / "weights.safetensors").exists()
    assert list_checkpoints(kept) == []


def test_validation_that_is_not_a_number_on_one_worker_stops_all(training, tmp_path):
    failure = failure_of(training, task_of(training, "DivergesInValidation", PAIR, tmp_path))
    assert failure.message == "NotFiniteError: the validation loss of epoch 1 is inf"
    assert not (tmp_path / "weights.safetensors").exists()


@EVERY_PLAN
def test_weights_of_the_best_validation_are_kept_beside_the_last(plan, training, tmp_path):
    best = tmp_path / "best-weights.safetensors"
    task = task_of(training, "Worsens", plan, tmp_path, epochs=4, best_weights=str(best))
    run(training, task)
    saved = [(one.epoch, one.validation_loss) for one in training.reports(BestWeightsSaved)]
    assert saved == [(1, 1.0), (2, 0.0)]
    case = tiny_cases.Sgd()
    assert largest_error(load_weights(best), trained_alone(case, 8, epochs=2)) < 1e-4
    last = load_weights(tmp_path / "weights.safetensors")
    assert largest_error(last, trained_alone(case, 8, epochs=4)) < 1e-4


def test_resumed_training_knows_the_best_validation_of_the_first(training, tmp_path):
    best, kept = tmp_path / "best-weights.safetensors", tmp_path / "kept"
    task = task_of(training, "Worsens", ALONE, tmp_path, epochs=2, best_weights=str(best))
    run(training, replace(task, checkpoint=CheckpointConfig(folder=str(kept))))
    (newest,) = list_checkpoints(kept)
    training.events.clear()
    elsewhere = str(tmp_path / "other.safetensors")
    config = CheckpointConfig(folder=str(kept), resume_from=str(newest))
    run(training, replace(task, epochs=3, checkpoint=config, best_weights=elsewhere))
    (saved,) = training.reports(BestWeightsSaved)
    assert (saved.path, saved.epoch, saved.validation_loss) == (str(best), 2, 0.0)
    assert not Path(elsewhere).exists()


def test_best_weights_that_cannot_be_written_do_not_end_the_training(training, tmp_path):
    best = str(tmp_path / "missing" / "best.safetensors")
    run(training, task_of(training, "Worsens", PAIR, tmp_path, epochs=4, best_weights=best))
    assert training.reports(BestWeightsSaved) == []
    lost = [one.message.partition(": the weights cannot")[0] for one in training.reports(Warned)]
    assert lost == [f"the best weights, of epoch {epoch}, are not kept" for epoch in (1, 2, 3, 4)]
    assert (tmp_path / "weights.safetensors").exists()


def test_best_weights_need_a_validation(training, tmp_path):
    best = str(tmp_path / "best.safetensors")
    task = task_of(training, "DivergesAtLast", ALONE, tmp_path, best_weights=best)
    failure = failure_of(training, task)
    assert failure.message == "UseCaseError: --keep-best and no validation samples: leave it out"
    assert failure.users_fault


def test_state_that_cannot_be_saved_is_found_before_the_first_step(training, tmp_path):
    failure = failure_of(training, task_of(training, "Unsaveable", ALONE, tmp_path))
    assert failure.message.startswith(
        "CheckpointError: the model's state['1._extra_state']['calls']"
    )
    assert failure.users_fault
    assert training.reports(StepDone) == []


@pytest.mark.parametrize("plan", [ALONE, PAIR], ids=lambda plan: plan.strategy)
def test_extra_state_of_a_model_is_saved(plan, training, tmp_path):
    run(training, task_of(training, "Counts", plan, tmp_path))
    state = load_weights(tmp_path / "weights.safetensors")
    assert state["1._extra_state"] == {"calls": 20}
    assert isinstance(state["1.weight"], torch.Tensor)


def test_model_with_extra_state_makes_no_pipeline(training):
    failure = training.failure_of("Counts", STAGES)
    assert failure.message.startswith("UseCaseError: layers() have a get_extra_state(), which ")


def test_epoch_tells_the_learning_rate_of_its_last_step(training, tmp_path):
    run(training, task_of(training, "Scheduled", PAIR, tmp_path, epochs=2))
    rates = [one.learning_rates for one in training.reports(StepsFinished)]
    assert len(rates) == 2
    assert all(len(one) == 1 and one[0] > 0 for one in rates)
    assert rates[0] != rates[1]
