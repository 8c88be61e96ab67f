"""Samples of what a store holds, and the transactions of a search that writes it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from store_cases import trial

from launch.case_facts import CaseFacts
from launch.plan import Plan
from planner.plans.stored_plan import StoredPlan, utc_now
from planner.records.job_record import JobKind, JobRecord, JobState
from planner.store import Store
from planner.trials.result import TrialResult
from planner.tuning.study import Study
from probes.hardware import CoreLimit, Cpu, Hardware, Memory
from probes.timing import Interval

NODE = Hardware(
    node="vm",
    cpu=Cpu(
        architecture="x86_64",
        logical_cores=2,
        usable_cores=2,
        core_ids=(0, 1),
        limits=(CoreLimit(source="affinity", cores=2),),
    ),
    memory=Memory(total_bytes=2**34, usable_bytes=2**34),
)
CASE = CaseFacts(
    default_batch=32,
    train_samples=5418,
    validation_samples=585,
    parameter_count=57_000_000,
    parameter_bytes=228_000_000,
    max_stages=8,
    digest="sha256:cc",
)
STUDY = Study(
    use_case="simplebig",
    node="vm",
    fingerprint=NODE.fingerprint(),
    precision="fp32",
    software={"torch": "2.15.0", "ddlplan": "0.1.0", "python": "3.11.7"},
    data="sha256:cc",
    seed=0,
    facts=CASE,
)
PLAN = Plan(strategy="threads", node_batch=32, threads_per_process=2)


def make_plan(study_id: int) -> StoredPlan:
    """Make a plan that a search of a study has found."""
    return StoredPlan(
        use_case="simplebig",
        use_case_digest=CASE.digest,
        node="vm",
        fingerprint=NODE.fingerprint(),
        plan=PLAN,
        throughput_samples_per_s=Interval(median=42.8, low=42.1, high=43.5, count=24),
        speedup=None,
        baseline=None,
        peak_memory_bytes=2**30,
        software=STUDY.software,
        created_at=utc_now(),
        study_id=study_id,
    )


def draw_transactions(chance: random.Random, count: int) -> Iterator[Callable[[Store], Any]]:
    """Give what a search, its job and somebody who tidies up write, one transaction each."""
    yield lambda store: store.machines.save_probe(NODE)
    yield lambda store: store.studies.get_or_create(STUDY)
    yield lambda store: store.jobs.add(
        JobRecord(
            kind=JobKind.TUNE,
            created_at=utc_now(),
            machine="vm",
            user="ann",
            title="ddlplan tune",
            is_detached=False,
            state=JobState.RUNNING,
        )
    )
    plans: list[int] = []
    for number in range(count):
        drawn = chance.random()
        if drawn < 0.6:
            yield partial(_add_trial, trial(number, chance.choice((10, 100, 600))))
        elif drawn < 0.75:
            yield lambda store: plans.append(store.plans.save(make_plan(1), ends_search=True))
        elif drawn < 0.85 and plans:
            yield lambda store: store.plans.remove(plans.pop(0))
        elif drawn < 0.95:
            yield lambda store: store.jobs.beat(1)
        else:
            yield lambda store: store.studies.begin_afresh(STUDY)


def _add_trial(result: TrialResult, store: Store) -> None:
    store.studies.add_trial(1, result)
