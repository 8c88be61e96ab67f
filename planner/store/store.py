"""Store: an open database, by its parts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Self

from planner.plans.stored_plan import utc_now
from planner.store.catalog import Catalog
from planner.store.databases.database import Database
from planner.store.databases.opening import LOCK_TIMEOUT_S, open_database
from planner.store.event_log import EventLog
from planner.store.machine_store import MachineStore
from planner.store.name_search import NameSearch
from planner.store.plan_store import PlanStore
from planner.store.study_store import StudyStore

if TYPE_CHECKING:
    from planner.store.job_store import JobStore
    from planner.store.sweep_store import SweepStore
    from planner.store.training_store import TrainingStore


class Store:
    """An open database. Several processes may use it at once.

    Attributes:
        studies: What searches have tried; each has its trials.
        plans: What they have found.
        machines: Probes of machines, and times of the networks between them.
        events: What changed.
        catalog: Lists for those who look around.
        names: Search by name in all of these.
    """

    def __init__(self, database: Database, now: Callable[[], datetime]) -> None:
        self._database = database
        self._now = now
        self.machines = MachineStore(database, now)
        self.studies = StudyStore(database, self.machines, now)
        self.plans = PlanStore(database, now)
        self.events = EventLog(database)
        self.catalog = Catalog(database)
        self.names = NameSearch(database)

    @cached_property
    def jobs(self) -> JobStore:
        """Searches, trainings and sweeps that run, or ran."""
        from planner.store.job_store import JobStore  # not to list plans, as the next two

        return JobStore(self._database, self._now)

    @cached_property
    def trainings(self) -> TrainingStore:
        """How far trainings are, and what they used."""
        from planner.store.training_store import TrainingStore

        return TrainingStore(self._database, self._now)

    @cached_property
    def sweeps(self) -> SweepStore:
        """Trainings of one use case with each of some batches."""
        from planner.store.sweep_store import SweepStore

        return SweepStore(self._database, self._now)

    @classmethod
    def open(
        cls,
        url: str,
        *,
        create: bool = True,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        outage_s: float | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> Self:
        """Open a database; create or migrate it where needed.

        Args:
            url: A path, ``sqlite:///path``, or ``postgresql://user@host/name``.
            create: Whether to create a missing database. False for commands that only read, so
                that they leave no file behind.
            lock_timeout_s: How long each transaction waits for those of other programs.
            outage_s: How long each transaction waits for a server that does not answer any more,
                once it has answered; five times ``lock_timeout_s`` where left out.
            now: Clock for the times that the store adds.

        Raises:
            StoreUrlError: ``url`` names no database.
            NoDatabaseError: There is no database, and ``create`` is false.
            StoreError: The database cannot be used.
        """
        database = open_database(
            url, create=create, lock_timeout_s=lock_timeout_s, outage_s=outage_s
        )
        return cls(database, now)

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
