"""Names: machines, studies, plans, trainings and jobs found by a part of a name."""

from __future__ import annotations

from planner.records.name_match import NameMatch
from planner.store import Store


def find(text: str, *, most: int = 20, db: str = "planner.db") -> list[NameMatch]:
    """Give things whose use case, machine or command has a text in it, in any case.

    Of each kind they are at most so many, the newest first.

    Raises:
        NoDatabaseError: There is no database.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        return store.names.find(text, most=most)


def find_use_cases(*, db: str = "planner.db") -> list[str]:
    """Give the use cases that plans are stored of, as they were spelled; scripts are none.

    Raises:
        NoDatabaseError: There is no database.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        return store.names.use_cases()
