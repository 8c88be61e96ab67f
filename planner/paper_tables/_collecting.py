"""Collecting of what a database holds of the papers' use cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

from planner.errors import NoDatabaseError
from planner.paper_tables._base import Paper
from planner.paper_tables._evidence import (
    StoredEvidence,
    StudyEvidence,
    SweepEvidence,
    TrainingEvidence,
)
from planner.records.machine_record import MachineRecord
from planner.records.study_record import StudyRecord
from planner.records.usage_record import HostUsage
from planner.store import Store
from planner.sweeps.sweep_record import SweepPoint
from planner.trials.result import Outcome
from planner.tuning.study import StoredTrial

_MOST_MACHINES = 6
_MOST_TRIALS = 2000
_MOST_TRAININGS = 100


def collect(
    papers: Sequence[Paper],
    db: str,
    reasons: Mapping[str, str],
    data: Mapping[str, Path] | None = None,
) -> StoredEvidence:
    """Read what is stored; nothing where there is no database yet.

    Args:
        papers: Whose use cases.
        db: Database.
        reasons: Why something could not be measured just now, by its key.
        data: Those that were asked for, by use case without settings.

    Raises:
        StoreError: The database cannot be used.
    """
    asked = {name: str(path.absolute()) for name, path in (data or {}).items()}
    nothing = StoredEvidence(reasons=reasons, db=db, data=asked)
    cases = sorted({case for paper in papers for case in paper.use_cases})
    try:
        with Store.open(db, create=False) as store:
            machines = store.catalog.machines()
            return replace(
                nothing,
                studies={
                    case: list(_studies(store, case, machines, db, nothing)) for case in cases
                },
                trainings={case: list(_trainings(store, case, db)) for case in cases},
                sweeps={case: list(_sweeps(store, case, db)) for case in cases},
                machines=machines,
            )
    except NoDatabaseError:
        return nothing


def _studies(
    store: Store,
    case: str,
    machines: Sequence[MachineRecord],
    db: str,
    asked: StoredEvidence,
) -> Iterator[StudyEvidence]:
    """Give the study in fp32 of each machine that was used last, of the data asked for if any.

    A search goes on with an old study where it has the same data: the newest is not the last used.
    """
    known = {(one.name, one.fingerprint): one.hardware for one in machines}
    by_place: dict[tuple[str, str], list[StudyRecord]] = {}
    for record in sorted(
        store.catalog.studies(use_case=case),
        key=lambda one: (
            asked.suits(case, None if one.facts is None else one.facts.data),
            one.last_trial_at or one.created_at,
            one.id,
        ),
        reverse=True,
    ):
        if record.precision == "fp32" and any(Outcome(one).has_times for one in record.outcomes):
            by_place.setdefault((record.node, record.fingerprint), []).append(record)
    for place, (record, *others) in islice(by_place.items(), _MOST_MACHINES):
        yield StudyEvidence(
            record=record,
            read_trials=partial(_read_trials, db, record.id),
            hardware=known.get(place),
            has_plan=bool(store.catalog.plans(study_id=record.id, most=1)),
            others=len(others),
        )


def _trainings(store: Store, case: str, db: str) -> Iterator[TrainingEvidence]:
    for record in store.trainings.find(use_case=case, most=_MOST_TRAININGS):
        if record.steps and record.id is not None:
            yield TrainingEvidence(record=record, read_usage=partial(_read_usage, db, record.id))


def _read_trials(db: str, study_id: int) -> Sequence[StoredTrial]:
    with Store.open(db, create=False) as store:
        return store.catalog.trials(study_id=study_id, most=_MOST_TRIALS)[::-1]


def _read_usage(db: str, training_id: int) -> Mapping[str, HostUsage]:
    with Store.open(db, create=False) as store:
        return store.trainings.usage(training_id)


def _read_points(db: str, sweep_id: int) -> Sequence[SweepPoint]:
    with Store.open(db, create=False) as store:
        return store.sweeps.get(sweep_id).points


def _sweeps(store: Store, case: str, db: str) -> Iterator[SweepEvidence]:
    for record in store.sweeps.find(case):
        if record.num_points and record.id is not None:
            yield SweepEvidence(record=record, read_points=partial(_read_points, db, record.id))
