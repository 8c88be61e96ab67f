"""Studies: what was tried on a machine, and what is known of each setting.

Example:
    >>> from planner.api import studies
    >>> [study.num_trials for study in studies.find()]  # doctest: +SKIP
    [61, 40]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.plans.stored_plan import StoredPlan
from planner.records.machine_record import MachineRecord
from planner.records.study_record import StudyRecord
from planner.store import Store
from planner.tuning.study import StoredTrial


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStudy:
    """A study with all that came of it."""

    record: StudyRecord
    trials: Sequence[StoredTrial]
    """In the order in which they ended."""

    plans: Sequence[StoredPlan]
    """That its searches stored, the latest last; removed ones are not among them."""

    machine: MachineRecord | None
    """``None`` where no probe of it is on record."""


def find(
    use_case: str | None = None,
    node: str | None = None,
    *,
    before: int | None = None,
    most: int | None = None,
    db: str = "planner.db",
) -> list[StudyRecord]:
    """Give studies without their trials, the newest first.

    Example:
        >>> from planner.api import studies
        >>> studies.find(most=1)[0].use_case  # doctest: +SKIP
        'simplebig'

    Args:
        use_case: Only of this one, as it was spelled.
        node: Only on this node.
        before: With a lower number.
        most: At most so many.
        db: Database.

    Raises:
        NoDatabaseError: There is no database.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        return store.catalog.studies(use_case=use_case, node=node, before=before, most=most)


def get_record(study_id: int, *, db: str = "planner.db") -> StudyRecord:
    """Give one study without its trials.

    Example:
        >>> from planner.api import studies
        >>> studies.get_record(3).outcomes  # doctest: +SKIP
        {'ok': 55, 'oom': 6}

    Raises:
        NoPlanError: None has this number.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        return store.catalog.study(study_id)


def get(study_id: int, *, db: str = "planner.db") -> FoundStudy:
    """Give one study with its trials.

    Example:
        >>> from planner.api import studies
        >>> len(studies.get(3).trials)  # doctest: +SKIP
        61

    Raises:
        NoPlanError: None has this number.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        record = store.catalog.study(study_id)
        machine = next(
            (
                one
                for one in store.catalog.machines()
                if one.name == record.node and one.fingerprint == record.fingerprint
            ),
            None,
        )
        plans = store.plans(record.use_case, record.node)
        return FoundStudy(
            record=record,
            trials=store.trials(study_id),
            plans=[plan for plan in plans if plan.study_id == study_id],
            machine=machine,
        )
