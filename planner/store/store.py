"""Store: an open database; studies, trials and plans as frozen values, all else by its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Self

from sqlalchemy import ColumnElement, Connection, Select, Table, func, literal, select

from launch.case_facts import CaseFacts
from planner.errors import NoPlanError, StoreCorruptError
from planner.plans.stored_plan import StoredPlan, find_best, stale_reasons, utc_now
from planner.records.event_record import Topic
from planner.search.likeness import (
    SAME_HARDWARE,
    SimilarTrials,
)
from planner.store.catalog import Catalog
from planner.store.databases.database import Database, insert
from planner.store.databases.opening import (
    LOCK_TIMEOUT_S,
    check_location,
    find_hazard,
    find_missing_file,
    open_database,
)
from planner.store.databases.tables import PlainText, plans, studies, trials
from planner.store.event_log import EventLog, record_event
from planner.store.job_store import JobStore
from planner.store.machine_store import MachineStore, record_node
from planner.store.name_search import NameSearch
from planner.store.rows import (
    find_document,
    plan_columns,
    plan_from_row,
    study_columns,
    trial_columns,
    trial_from_row,
)
from planner.store.similar_trials import find_similar
from planner.store.sweep_store import SweepStore
from planner.store.training_store import TrainingStore
from planner.store.trial_reading import read_with_studies
from planner.trials.result import TrialResult
from planner.tuning.study import EarlierTrials, LaterTrials, StoredTrial, Study

_MAX_ID = 2**63 - 1


class Store:
    """An open database. Each method is one transaction; several processes may use it at once."""

    def __init__(self, database: Database, now: Callable[[], datetime]) -> None:
        self._database = database
        self._now = now
        self.machines = MachineStore(database, now)
        self.jobs = JobStore(database, now)
        self.trainings = TrainingStore(database, now)
        self.sweeps = SweepStore(database, now)
        self.events = EventLog(database)
        self.catalog = Catalog(database)
        self.names = NameSearch(database)

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

    @staticmethod
    def check_location(url: str) -> None:
        """Check that `open` would succeed, as far as possible without creating anything.

        Raises:
            StoreUrlError: ``url`` names no database.
            StoreError: The database cannot be used or created.
        """
        check_location(url)

    @staticmethod
    def find_hazard(url: str) -> str | None:
        """Warn of a database on a file system where other machines may write to it too.

        Raises:
            StoreUrlError: ``url`` names no database.
        """
        return find_hazard(url)

    @staticmethod
    def find_missing_file(url: str) -> str | None:
        """Give the whole path of a database file that is not there yet; ``None`` for any other.

        Raises:
            StoreUrlError: ``url`` names no database.
        """
        return find_missing_file(url)

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get_or_create_study(self, study: Study) -> int:
        """Give the id of the latest study with this key; create it where there is none."""

        def work(connection: Connection) -> int:
            query = (
                select(studies.c.id)
                .where(studies.c.key == study.key)
                .order_by(studies.c.generation.desc())
                .limit(1)
            )
            found: int | None = connection.execute(query).scalar()
            if found is None:
                return self._add_study(connection, study)
            this = studies.update().where(studies.c.id == found)
            connection.execute(this.values(facts=study_columns(study)["facts"]))
            return found

        return self._database.write(work)

    def begin_study_afresh(self, study: Study) -> int:
        """Create a new generation of a study; earlier trials stay as evidence of earlier plans."""

        def work(connection: Connection) -> int:
            return self._add_study(connection, study)

        return self._database.write(work)

    def finish_search(self, study_id: int) -> None:
        """Mark a search as finished, so that the next one of its study is a new one."""

        def work(connection: Connection) -> None:
            _finish_search(connection, study_id)
            record_event(connection, Topic.STUDY, study_id, self._now)

        self._database.write(work)

    def count_finished_trials(self, study_id: int) -> int:
        """Count the trials of a study, its first ones, that belong to finished searches.

        Raises:
            StoreCorruptError: The study is not there, though its number was read here.
        """
        query = select(studies.c.finished_trials).where(studies.c.id == study_id)
        found = self._database.fetch(query, lambda row: int(row["finished_trials"]))
        if not found:  # its number is from an index
            raise StoreCorruptError(
                f"database {self._database.name}: study {study_id} is in an index and not in its "
                "table: restore a copy, or choose another with --db"
            )
        return found[0]

    def case_facts(self, study_id: int) -> CaseFacts | None:
        """Give what a study knows of its use case; ``None`` where a first release made it."""
        query = select(studies.c.facts).where(studies.c.id == study_id)
        found = self._database.fetch(query, lambda row: find_document(row["facts"], CaseFacts))
        return found[0] if found else None

    def begin_search(self, study: Study, *, fresh: bool) -> EarlierTrials:
        """Give the study to continue, or a fresh one, with its trials."""
        begin = self.begin_study_afresh if fresh else self.get_or_create_study
        study_id = begin(study)
        newest = self._newest_trial()
        earlier = self._earlier(study_id, self.count_finished_trials(study_id), up_to=newest)
        if fresh:
            return earlier
        return replace(earlier, similar=self.find_similar(study, up_to=newest))

    def find_studies(self, use_case: str, node: str) -> dict[str, EarlierTrials]:
        """Give the latest study of each key, of a use case on a node.

        The use case may lie elsewhere by now, so those of equally named objects are among them.
        """
        query = (
            select(studies.c.id, studies.c.key, studies.c.finished_trials)
            .where(_has_same_object(studies, use_case), studies.c.node == node)
            .order_by(studies.c.generation)
        )
        rows = self._database.fetch(query, dict)
        return {row["key"]: self._earlier(row["id"], row["finished_trials"]) for row in rows}

    def later_trials(self, study_id: int, after: int) -> LaterTrials:
        """Give the trials after a number, of a study and of its use case on equal hardware."""
        this = select(studies).where(studies.c.id == study_id).subquery()
        query = (
            select(trials)
            .join(studies)
            .join(
                this,
                (this.c.data == studies.c.data) & (this.c.fingerprint == studies.c.fingerprint),
            )
            .where(trials.c.id > after)
            .order_by(trials.c.id)
        )
        found = self._database.fetch(query, trial_from_row)
        others: dict[int, list[TrialResult]] = {}
        for trial in found:
            if trial.study_id != study_id:
                others.setdefault(trial.study_id, []).append(trial.result)
        return LaterTrials(
            newest=max((trial.id for trial in found), default=after),
            own=tuple(trial for trial in found if trial.study_id == study_id),
            similar=tuple(
                SimilarTrials(study_id=other, likeness=SAME_HARDWARE, results=tuple(results))
                for other, results in others.items()
            ),
        )

    def find_similar(self, study: Study, *, up_to: int | None = None) -> tuple[SimilarTrials, ...]:
        """Give trials of other studies that say something of this one, up to one with a number."""
        return find_similar(self._database, self.machines, study, up_to=up_to)

    def _newest_trial(self) -> int:
        (newest,) = self._database.fetch(
            select(func.max(trials.c.id).label("id")), lambda row: int(row["id"] or 0)
        )
        return newest

    def _earlier(self, study_id: int, finished: int, *, up_to: int | None = None) -> EarlierTrials:
        stored = [t for t in self.trials(study_id) if up_to is None or t.id <= up_to]
        return EarlierTrials(
            study_id=study_id,
            results=tuple(trial.result for trial in stored),
            finished=min(finished, len(stored)),
            newest=up_to or 0,
        )

    def add_trial(self, study_id: int, result: TrialResult) -> int:
        """Save a finished trial and return its id. Call it once per trial."""

        def work(connection: Connection) -> int:
            number = _next(connection, trials, "number", trials.c.study_id == study_id, first=0)
            values = {"study_id": study_id, "number": number, "created_at": self._now()}
            record_event(connection, Topic.STUDY, study_id, self._now)
            return insert(connection, trials, values | trial_columns(result))

        return self._database.write(work)

    def trials(self, study_id: int) -> list[StoredTrial]:
        """Give the trials of a study in the order in which they ended."""
        query = select(trials).where(trials.c.study_id == study_id).order_by(trials.c.number)
        return self._database.fetch(query, trial_from_row)

    def all_trials(self, use_case: str | None = None, node: str | None = None) -> list[StoredTrial]:
        """Give the trials of every study, in the order in which they ended."""
        query = _filtered(select(trials).join(studies), studies, studies.c.data, use_case, node)
        return read_with_studies(self._database, query.order_by(trials.c.id))

    def save_plan(self, stored: StoredPlan, *, ends_search: bool = False) -> int:
        """Save a plan with its evidence and return its id.

        Args:
            stored: The plan.
            ends_search: Whether to finish its search too, as `finish_search` does.
        """

        def work(connection: Connection) -> int:
            if ends_search:
                _finish_search(connection, stored.study_id)
                record_event(connection, Topic.STUDY, stored.study_id, self._now)
            plan_id = insert(connection, plans, plan_columns(stored))
            record_event(connection, Topic.PLAN, plan_id, self._now)
            return plan_id

        return self._database.write(work)

    def plans(self, use_case: str | None = None, node: str | None = None) -> list[StoredPlan]:
        """Give the plans in the order of their ids.

        Those of a use case are the ones that were found where it lies, and those of an equal one
        that lies elsewhere.
        """
        query = _filtered(select(plans), plans, plans.c.use_case_digest, use_case, node)
        return self._database.fetch(query.order_by(plans.c.id), plan_from_row)

    def find_namesakes(self, use_case: str) -> dict[str, str]:
        """Give where objects of the same name as this use case lie, by their digests."""
        query = (
            select(plans.c.use_case_digest, plans.c.use_case)
            .where(_has_same_object(plans, use_case), plans.c.use_case_digest.is_not(None))
            .order_by(plans.c.id)
        )
        rows = self._database.fetch(query, dict)
        return {row["use_case_digest"]: row["use_case"] for row in rows}

    def get_plan(self, plan_id: int) -> StoredPlan:
        """Give one plan.

        Raises:
            NoPlanError: No plan has this id.
        """
        found = []
        if 0 < plan_id <= _MAX_ID:
            query = select(plans).where(plans.c.id == plan_id)
            found = self._database.fetch(query, plan_from_row)
        if not found:
            raise NoPlanError(f"no plan {plan_id}: ddlplan plans list shows which there are")
        return found[0]

    def best_plan(
        self,
        use_case: str,
        *,
        software: Mapping[str, str],
        fingerprint: str | None = None,
        node: str | None = None,
    ) -> StoredPlan | None:
        """Give the plan to use, ``None`` where none fits; stale only where every other is stale.

        `find_best` chooses: the latest of each study, fp32 before speed.

        Args:
            use_case: Use case that is trained.
            software: Versions that would run it.
            fingerprint: Hardware that it must have been found on, on any node.
            node: Node that it must have been found on, where the hardware is not known. With
                both, this node's own plan comes before those of nodes with equal hardware, and
                its plans on other hardware come last.
        """
        every = self.plans(use_case)
        own = [plan for plan in every if plan.node == node]
        if fingerprint is None:
            chosen = every if node is None else own
            return find_best(chosen, fingerprint=None, software=software)
        equal = [plan for plan in every if plan.fingerprint == fingerprint]
        best = find_best(equal or own, fingerprint=fingerprint, software=software)
        proven = [plan for plan in own if plan.fingerprint == fingerprint]
        mine = find_best(proven, fingerprint=fingerprint, software=software)
        if best is None or mine is None or mine.plan.precision != best.plan.precision:
            return best
        is_stale = stale_reasons(mine, fingerprint=fingerprint, software=software)
        return best if is_stale else mine

    def remove_plan(self, plan_id: int) -> None:
        """Delete a plan; its trials stay.

        Raises:
            NoPlanError: No plan has this id.
        """
        self.get_plan(plan_id)

        def work(connection: Connection) -> None:
            connection.execute(plans.delete().where(plans.c.id == plan_id))
            record_event(connection, Topic.PLAN, plan_id, self._now)

        self._database.write(work)

    def _add_study(self, connection: Connection, study: Study) -> int:
        record_node(connection, study.node, study.fingerprint, self._now())
        generation = _next(connection, studies, "generation", studies.c.key == study.key, first=1)
        values = {"generation": generation, "created_at": self._now(), "finished_trials": 0}
        return insert(connection, studies, values | study_columns(study))


def _finish_search(connection: Connection, study_id: int | None) -> None:
    count = select(func.count()).where(trials.c.study_id == study_id).scalar_subquery()
    this = studies.update().where(studies.c.id == study_id)
    connection.execute(this.values(finished_trials=count))


def _has_same_object(table: Table, use_case: str) -> ColumnElement[bool]:
    """Match a use case, and objects of its name in other files and modules."""
    _, colon, name = use_case.rpartition(":")
    same = table.c.use_case == use_case
    if not colon:
        return same
    # Not LIKE: SQLite's takes upper and lower case for equal.
    end = literal(f":{name}", PlainText)
    start = func.length(table.c.use_case) - func.length(end) + 1
    return same | (func.substr(table.c.use_case, start) == end)


def _filtered(
    query: Select[Any],
    table: Table,
    digest: ColumnElement[str],
    use_case: str | None,
    node: str | None,
) -> Select[Any]:
    """Keep what is of a use case, one that is equal to it and lies elsewhere included."""
    if use_case is not None:
        here = table.c.use_case == use_case
        query = query.where(here | digest.in_(select(digest).where(here, digest.is_not(None))))
    if node is not None:
        query = query.where(table.c.node == node)
    return query


def _next(
    connection: Connection, table: Table, column: str, which: ColumnElement[bool], *, first: int
) -> int:
    """Give the number after the highest; within a write transaction no other can take it."""
    highest = connection.execute(select(func.max(table.c[column])).where(which)).scalar()
    return first if highest is None else int(highest) + 1
