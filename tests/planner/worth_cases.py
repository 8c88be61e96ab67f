"""A study of a plan on two cores: baselines, neighbours and a runner-up, with known times."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import sample_plan
from sample_plan import NOON

from launch.case_facts import CaseFacts
from launch.plan import Plan
from planner.plans.objective import Objective
from planner.trials.result import Outcome, Role, TrialResult
from planner.tuning.study import StoredTrial
from probes.disturbance import Disturbance
from probes.hardware import CoreLimit, Cpu, Hardware, Memory, Speeds
from probes.timing import DisturbedTurn, Measurement

BEST = Plan(
    strategy="processes",
    node_batch=128,
    processes=2,
    replicas=2,
    memory_format="channels_last",
    fused_optimizer=True,
)
OBJECTIVE = Objective(
    name="time-to-loss",
    noise_scale=96.0,
    noise_low=80.0,
    noise_high=120.0,
    base_batch=32,
    steps=100,
)
ONE_CORE = Plan(strategy="sequential", node_batch=32)
ALL_CORES = Plan(strategy="threads", node_batch=32, threads_per_process=2)
STORED = replace(sample_plan.FOUND, id=7, plan=BEST, study_id=3)
FACTS = CaseFacts(
    default_batch=32,
    train_samples=3200,
    validation_samples=10,
    parameter_count=50_000_000,
    parameter_bytes=200_000_000,
    max_stages=1,
    digest="sha256:0",
    flop_per_sample=4e9,
    has_fused_optimizer=True,
)
NODE = Hardware(
    node="vm",
    cpu=Cpu(
        architecture="x86_64",
        logical_cores=2,
        usable_cores=2,
        core_ids=(0, 1),
        limits=(CoreLimit(source="test", cores=2),),
    ),
    memory=Memory(total_bytes=2**33, usable_bytes=2**33),
    speeds=Speeds(
        fp32_one_core_flop_per_s=1e11,
        fp32_all_cores_flop_per_s=2e11,
        copy_one_core_bytes_per_s=1e10,
        copy_all_cores_bytes_per_s=1.5e10,
    ),
)


def trial(number: int, plan: Plan, rate: float, role: Role = Role.SEARCH) -> StoredTrial:
    """A trial of ten seconds at a rate in samples/s, each step a little off."""
    step_s = plan.node_batch / rate
    result = TrialResult(
        plan=plan,
        role=role,
        outcome=Outcome.OK,
        measurement=Measurement(
            samples_s=tuple(step_s * (1 + 0.001 * (n % 5 - 2)) for n in range(20))
        ),
        elapsed_s=10.0,
    )
    at = NOON - timedelta(minutes=60 - number)
    return StoredTrial(id=number + 1, study_id=3, number=number, created_at=at, result=result)


BUSY = Disturbance(others_cores=0.5)


def beside_others(measured: Measurement) -> Measurement:
    """The same while others computed beside every turn."""
    turns = (DisturbedTurn(round=n, disturbance=BUSY, was_repeated=False) for n in measured.rounds)
    return replace(measured, disturbed=tuple(turns))


TRIALS = [
    trial(0, ONE_CORE, 20.0, Role.BASELINE),
    trial(1, ALL_CORES, 32.0),
    trial(2, replace(BEST, node_batch=32), 36.0),
    trial(3, replace(BEST, memory_format="contiguous"), 38.0),
    trial(4, replace(BEST, node_batch=64), 39.0),
    trial(5, replace(BEST, strategy="threads", processes=1), 39.9),
    trial(6, BEST, 40.0, Role.FINAL),
    trial(90, replace(BEST, node_batch=256), 80.0),  # of a later search
]
