"""Stored trainings and jobs, and what hosts used, for tests of what is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from sample_plan import NOON

from launch.noise_scale.estimate import NoiseScale
from launch.plan import Plan
from launch.reports import EpochDone
from planner.records.job_record import JobKind, JobRecord
from planner.records.training_record import TrainingHost, TrainingRecord, TrainingStatus
from planner.records.usage_record import HostUsage, UsageCurve

EPOCH = EpochDone(
    epoch=1,
    train_loss=0.7,
    validation_loss=0.6,
    metrics={"accuracy": 0.8},
    samples=640,
    train_time_s=32.0,
    validation_time_s=1.0,
    throughput_samples_per_s=20.0,
    elapsed_s=40.0,
)
HOST = TrainingHost(
    host="node1",
    plan_id=1,
    plan=Plan(strategy="sequential", node_batch=8),
    plan_samples_per_s=80.0,
)
BEGUN = TrainingRecord(
    started_at=NOON,
    use_case="steady",
    data=None,
    seed=0,
    epochs=1,
    hosts=(HOST,),
    expected_samples_per_s=None,
    machine="vm",
    run_directory="/home/me/runs/1",
)
"""A training that has just begun."""

TRAINING = replace(
    BEGUN,
    id=1,
    use_case="simplebig",
    hosts=(
        TrainingHost(
            host="vm",
            plan_id=1,
            plan=Plan(strategy="processes", node_batch=32, processes=2),
            plan_samples_per_s=21.0,
        ),
    ),
    expected_samples_per_s=21.0,
    state=TrainingStatus.DONE,
    ended_at=NOON,
    epochs_done=(EPOCH,),
    steps=20,
)

JOB = JobRecord(
    kind=JobKind.TUNE,
    created_at=NOON,
    machine="vm",
    user="ada",
    title="ddlplan tune",
    is_detached=True,
)
"""A job that waits for its turn."""

NOISE = NoiseScale(scale=312.4, low=250.1, high=400.2, variance=312.4, square=1.0, measurements=41)


def usage_of(**rates: Sequence[float | None]) -> HostUsage:
    """Give the use of a host, a second for each value; what is not named is not known."""
    count = max(map(len, rates.values()), default=1)
    values: dict[str, Any] = {
        each.name: None for each in fields(HostUsage) if each.name not in ("time_s", "gpus")
    }
    curves = {
        name: UsageCurve(mean=tuple(curve), maximum=tuple(curve)) for name, curve in rates.items()
    }
    return HostUsage(time_s=tuple(float(n + 1) for n in range(count)), **(values | curves))
