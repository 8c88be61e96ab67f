"""Evidence for papers' tables: a study on two cores, trainings on it and on two hosts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import worth_cases
from sample_plan import NOON, SOFTWARE
from training_samples import EPOCH, TRAINING, usage_of

from launch.case_facts import CaseFacts
from launch.plan import Plan
from planner.paper_tables._evidence import (
    StoredEvidence,
    StudyEvidence,
    SweepEvidence,
    TrainingEvidence,
)
from planner.records.machine_record import MachineRecord
from planner.records.study_record import StudyRecord
from planner.sweeps.sweep_record import StoredSweep
from probes.hardware import Hardware

FACTS = replace(worth_cases.FACTS, max_stages=8)
NODE: Hardware = replace(worth_cases.NODE, gpu_reason="no NVIDIA driver")
MACHINE = MachineRecord(
    id=1,
    name="vm",
    fingerprint=NODE.fingerprint(),
    first_seen=NOON,
    last_seen=NOON,
    hardware=NODE,
)


def study(
    use_case: str = "simplebig", *, facts: CaseFacts = FACTS, **changes: Any
) -> StudyEvidence:
    """A study in which one core, threads and processes were timed."""
    record = StudyRecord(
        id=3,
        created_at=NOON,
        generation=1,
        use_case=use_case,
        node="vm",
        fingerprint=NODE.fingerprint(),
        precision="fp32",
        software=SOFTWARE,
        facts=facts,
        last_trial_at=NOON,
    )
    trials = changes.pop("trials", worth_cases.TRIALS)
    values = {"record": record, "read_trials": lambda: trials, "hardware": NODE}
    return StudyEvidence(**values | changes)


def training(
    plan: Plan, rate: float, *, number: int = 1, hosts: int = 1, **changes: Any
) -> TrainingEvidence:
    """A training of 60 seconds at a rate."""
    (host,) = TRAINING.hosts
    record = replace(
        TRAINING,
        id=number,
        hosts=tuple(replace(host, host=f"vm{n or ''}", plan=plan) for n in range(hosts)),
        **changes,
    )
    steady = [rate * (1 + 0.01 * (n % 3 - 1)) for n in range(60)]
    use = usage_of(
        samples_per_s=steady, busy_cores=[float(plan.threads)] * 60, memory_bytes=[2e9] * 60
    )
    return TrainingEvidence(
        record=record, read_usage=lambda: {each.host: use for each in record.hosts}
    )


def swept(sweep: StoredSweep, **changes: Any) -> SweepEvidence:
    """A sweep on the node of the studies."""
    record = replace(sweep.record, fingerprint=NODE.fingerprint(), **changes)
    return SweepEvidence(record=record, read_points=lambda: sweep.points)


def epochs(*accuracies: float, epoch_s: float = 100.0) -> Mapping[str, Any]:
    """Epochs that reached these accuracies."""
    done = tuple(
        replace(
            EPOCH,
            epoch=number,
            metrics={"accuracy": accuracy},
            train_time_s=epoch_s,
            validation_time_s=0.0,
        )
        for number, accuracy in enumerate(accuracies, 1)
    )
    return {"epochs_done": done}


EVIDENCE = StoredEvidence(
    studies={"simplebig": [study()]},
    trainings={
        "simplebig": [
            training(worth_cases.BEST, 60.0, number=3, hosts=2),
            training(worth_cases.BEST, 40.0, number=2),
            training(worth_cases.ONE_CORE, 20.0),
        ]
    },
)
