"""Trainings that were started, with their epochs and the use of their hosts.

Example:
    >>> from planner.api import trainings
    >>> [training.id for training in trainings.find()]  # doctest: +SKIP
    [2, 1]
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from planner.records.training_record import TrainingRecord, TrainingStatus
from planner.store import Store


def find(
    use_case: str | None = None,
    *,
    states: Collection[TrainingStatus] | None = None,
    before: int | None = None,
    most: int | None = None,
    db: str = "planner.db",
) -> list[TrainingRecord]:
    """Give trainings, the newest first.

    Example:
        >>> from planner.api import trainings
        >>> trainings.find("simplebig", most=1)[0].state  # doctest: +SKIP
        <TrainingStatus.DONE: 'done'>

    Args:
        use_case: Only of this one, as it was spelled.
        states: Only in one of these states.
        before: With a lower number.
        most: At most so many.
        db: Database.

    Raises:
        NoDatabaseError: There is no database.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        return store.trainings.find(use_case=use_case, states=states, before=before, most=most)


def get(training_id: int, *, db: str = "planner.db") -> TrainingRecord:
    """Give one training.

    Example:
        >>> from planner.api import trainings
        >>> trainings.get(1).epochs_done[-1].train_loss  # doctest: +SKIP
        0.71

    Raises:
        NoTrainingError: None has this number.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        return store.trainings.get(training_id)


def get_usage(training_id: int, *, db: str = "planner.db") -> Mapping[str, Any]:
    """Give what each host of a training used over time.

    Example:
        >>> from planner.api import trainings
        >>> list(trainings.get_usage(1))  # doctest: +SKIP
        ['node1']

    Raises:
        NoTrainingError: None has this number.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        store.trainings.get(training_id)  # or it raises
        return store.trainings.usage(training_id)
