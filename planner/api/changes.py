"""Changes: what was added to a database, for those who follow it.

Example:
    >>> from planner.api import changes
    >>> follower = changes.Follower()
    >>> place = follower.read(None).newest  # doctest: +SKIP
    >>> [change.topic for change in follower.read(place).events]  # doctest: +SKIP
    [<Topic.STUDY: 'study'>]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from planner.errors import NoDatabaseError, StoreError
from planner.records.event_record import EventRecord
from planner.records.job_record import OPEN_STATES
from planner.records.training_record import TrainingStatus
from planner.store import Store
from planner.supervision.states import true_jobs, true_trainings


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeBatch:
    """Changes after a place in the log."""

    newest: int
    """Number of the newest change there is; 0 without one."""

    events: Sequence[EventRecord] = ()
    """Oldest first; there may be more."""

    is_whole: bool = True
    """False where changes between the place and these are not in the log any more."""


def find_newest(*, db: str = "planner.db") -> EventRecord | None:
    """Give the newest change; ``None`` where nothing has changed yet.

    Raises:
        NoDatabaseError: There is no database.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        return store.events.find_newest()


class Follower:
    """Reads the log of changes of a database again and again; it need not be there yet."""

    def __init__(self, db: str = "planner.db") -> None:
        self._db = db
        self._store: Store | None = None

    def read(self, after: int | None) -> ChangeBatch:
        """Give what came after a change; with ``None`` only which is the newest.

        Raises:
            StoreError: The database cannot be used.
        """
        try:
            log = self._open().events
            newest = log.newest()
            if after is None or newest <= after:
                return ChangeBatch(newest=newest)
            events = log.after(after)
            is_whole = bool(events) and events[0].id == after + 1
            return ChangeBatch(newest=newest, events=events, is_whole=is_whole or log.has(after))
        except NoDatabaseError:
            return ChangeBatch(newest=0)
        except StoreError:
            self._store = None  # it may have been replaced
            raise

    def store_ends(self) -> None:
        """Store that jobs and trainings of this machine have ended which could not say so.

        Whatever is killed by SIGKILL writes nothing; what this stores is a change like others.

        Raises:
            StoreError: The database cannot be used.
        """
        try:
            store = self._open()
            jobs = store.jobs.find(states=OPEN_STATES)
            deque(true_jobs(store, jobs), maxlen=0)
            trainings = store.trainings.find(states=[TrainingStatus.RUNNING])
            deque(true_trainings(store, trainings), maxlen=0)
        except NoDatabaseError:
            return
        except StoreError:
            self._store = None
            raise

    def _open(self) -> Store:
        if self._store is None:
            self._store = Store.open(self._db, create=False, outage_s=0.0)
        return self._store
