"""Reports travel as lines and come back as they were; other lines are told apart from them."""

from __future__ import annotations

import json
import math

import pytest

from launch.gradient_sync.node_channel.gradient_layout import (
    GradientLayout,
    GradientLocation,
    TensorLayout,
)
from launch.reports import EpochDone, Report, SharesChanged, StepDone
from probes import codec
from probes.errors import InvalidDocumentError

EPOCH = EpochDone(
    epoch=1,
    train_loss=math.nan,
    validation_loss=math.inf,
    metrics={"top1": 0.5, "f1": math.nan},
    samples=8,
    train_time_s=1.0,
    validation_time_s=0.5,
    throughput_samples_per_s=8.0,
)
LAYOUT = GradientLayout(
    state_offset=64,
    participants=1,
    parameters=1,
    locations=(
        GradientLocation(
            index=0, participant=0, offset=128, layout=TensorLayout("float32", (2, 3), (3, 1))
        ),
    ),
    samples={"training": 8},
)


@pytest.mark.parametrize(
    "report", [LAYOUT, SharesChanged(step=3, node_batches=(4, 2), computed_s=(0.1, 0.2))]
)
def test_report_is_the_same_after_its_way(report):
    line = report.encode()
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    assert Report.decode(line) == report


def test_loss_that_is_no_number_arrives():
    step = StepDone(step=1, epoch=0, time_s=0.1, samples=4, loss=math.nan)
    assert math.isnan(Report.decode(step.encode()).loss)


def test_other_programs_are_given_null_for_what_is_no_number():
    shown = codec.to_builtins(EPOCH, null_for_nan=True)
    assert (shown["train_loss"], shown["validation_loss"]) == (None, None)
    assert shown["metrics"] == {"top1": 0.5, "f1": None}
    json.dumps(shown, allow_nan=False)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"a line of a library",
        b"3",
        b"[]",
        b"{}",
        b'{"kind": 3}',
        b'{"kind": []}',
        b'{"kind": "Unheard"}',
        b'{"kind": "StepDone"}',
        b'{"kind": "Warned", "message": 3}',
        b'{"kind": "Warned", "message": "mind", "remedy": "none"}',
    ],
)
def test_what_is_no_report_is_refused(line):
    with pytest.raises(InvalidDocumentError):
        Report.decode(line)
