"""Samples of what a store holds, and the transactions of a search that writes it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import store_cases
from sample_plan import FOUND
from training_samples import JOB
from worth_cases import FACTS, NODE

from planner.plans.stored_plan import StoredPlan, utc_now
from planner.records.job_record import JobState
from planner.store import Store
from planner.trials.result import TrialResult
from planner.tuning.study import Study

STUDY: Study = replace(store_cases.STUDY, fingerprint=NODE.fingerprint(), facts=FACTS)


def make_plan(study_id: int) -> StoredPlan:
    """Make a plan that a search of a study has found."""
    stored: StoredPlan = replace(
        FOUND, fingerprint=STUDY.fingerprint, created_at=utc_now(), study_id=study_id
    )
    return stored


def draw_transactions(chance: random.Random, count: int) -> Iterator[Callable[[Store], Any]]:
    """Give what a search, its job and somebody who tidies up write, one transaction each."""
    yield lambda store: store.machines.save_probe(NODE)
    yield lambda store: store.studies.get_or_create(STUDY)
    running = replace(JOB, is_detached=False, state=JobState.RUNNING)
    yield lambda store: store.jobs.add(running)
    plans: list[int] = []
    for number in range(count):
        drawn = chance.random()
        if drawn < 0.6:
            yield partial(_add_trial, store_cases.trial(number, chance.choice((10, 100, 600))))
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
