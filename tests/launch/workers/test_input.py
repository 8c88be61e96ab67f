"""Training from decoded pictures is training from the files, only faster."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from described_cases import described
from tiny_cases import Decodable, Pictures

from launch.data.decoded_pictures import DecodedPictures, make_layout
from launch.data.input_facts import describe_input
from launch.errors import InvalidPlanError
from launch.plan import Plan
from launch.reports import StepDone, Validated
from launch.workers.group import ReportReceived, explain_failure
from probes.hardware import Memory

ONE = Plan(strategy="sequential", node_batch=8)
TWO = Plan(strategy="processes", processes=2, replicas=2, node_batch=8, micro_batches=2)
PIPELINE = Plan(strategy="pipeline", processes=2, node_batch=8, micro_batches=4)
THREADS = Plan(strategy="threads", replicas=2, threads_per_process=2, node_batch=8)


def with_input(plan: Plan, source: str) -> Plan:
    return replace(plan, input=source)


CHANNELS_LAST = [replace(plan, memory_format="channels_last") for plan in (ONE, TWO, THREADS)]


@pytest.mark.parametrize(
    "plan",
    [ONE, PIPELINE, *CHANNELS_LAST],
    ids=lambda plan: f"{plan.strategy} {plan.memory_format}",
)
def test_weights_and_validation_equal_those_from_the_files(training, plan):
    weights = training.run(plan, "Decoded", epochs=2)
    judged = training.reports(Validated)
    cached = training.run(with_input(plan, "cache"), "Decoded", epochs=2)
    assert all(torch.equal(weights[name], cached[name]) for name in weights)
    sums = [
        sorted((v.epoch, v.samples, v.loss_sum) for v in some)
        for some in (judged, training.reports(Validated)[len(judged) :])
    ]
    assert sums[0] == sums[1]


def test_validation_samples_that_cannot_be_decoded_once_are_read_as_they_are(training):
    training.run(with_input(ONE, "cache"), "DecodedInTraining")
    assert sum(judged.samples for judged in training.reports(Validated)) == 10


def test_data_set_without_pictures_is_refused_in_one_line(training):
    failure = training.failure_of("Sgd", with_input(ONE, "cache"))
    assert failure.users_fault
    assert "input=cache" in failure.message
    assert "pixels()" in failure.message
    assert "use input=files" in failure.message
    assert "\n" not in failure.message


@pytest.mark.parametrize("plan", [ONE, TWO], ids=lambda plan: plan.strategy)
def test_trial_that_cannot_decode_ends_with_the_reason(training, plan):
    failure = training.failure_of("Undecodable", with_input(plan, "cache"))
    assert "is gone" in failure.message


@pytest.mark.parametrize("plan", [ONE, TWO], ids=lambda plan: plan.strategy)
def test_trial_steps_on_full_batches_of_decoded_pictures(training, plan):
    steps = []
    with training.start(training.task("Decoded", with_input(plan, "cache"))) as group:
        while len(steps) < 12:
            event = group.next_event()
            assert explain_failure(group, event) is None
            if isinstance(event, ReportReceived) and isinstance(event.report, StepDone):
                steps.append(event.report)
    assert {step.samples for step in steps} == {8}


@pytest.mark.parametrize(
    ("case", "inputs", "pixel_bytes"),
    [("Decoded", ("files", "cache"), 55 * 192), ("Sgd", ("files",), None)],
)
def test_planner_is_told_which_inputs_there_are(case, inputs, pixel_bytes):
    facts = described(case)[-1].facts
    assert facts.inputs == inputs
    assert facts.pixel_bytes == pixel_bytes


def test_decoded_pictures_are_not_handed_over_by_loading_processes():
    with pytest.raises(InvalidPlanError, match="use loader_workers=0"):
        Plan(strategy="sequential", node_batch=8, input="cache", loader_workers=1)


def test_pictures_without_room_are_no_choice_and_the_reason_is_said():
    datasets = Decodable(10**12, "huge"), Decodable(10, "small")
    facts = describe_input(*datasets)
    assert facts.inputs == ("files",)
    assert facts.pixel_bytes == (10**12 + 10) * 192
    (warning,) = facts.warnings
    assert f"need {sum(make_layout(d).num_bytes for d in datasets)} bytes" in warning
    assert "bytes are free" in warning
    assert "DDLPLAN_CACHE" in warning


def test_pictures_larger_than_half_of_the_memory_are_read_from_the_disk_and_that_is_said(
    monkeypatch,
):
    few = Memory(total_bytes=40_000, usable_bytes=40_000)
    monkeypatch.setattr("launch.data.memory_room.read_memory", lambda: few)
    fits, large = Decodable(40, "a"), Decodable(70, "b")
    assert describe_input(fits).warnings == ()
    facts = describe_input(large)
    assert facts.inputs == ("files", "cache")
    (warning,) = facts.warnings
    assert warning.startswith("decoded pictures take 13440 bytes and 20000 bytes, half of the mem")
    assert [DecodedPictures(one, threads=1).is_large for one in (fits, large)] == [False, True]


def test_choice_of_inputs_is_that_of_the_training_samples():
    assert describe_input(Pictures(3), Decodable(10, "b")).pixel_bytes is None
    assert describe_input(Decodable(10, "a"), Pictures(3)).inputs == ("files", "cache")
