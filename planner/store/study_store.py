"""Study store: studies with their trials, as searches continue them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, Table, func, select

from launch.case_facts import CaseFacts
from planner.errors import StoreCorruptError
from planner.records.event_record import Topic
from planner.search.likeness import SAME_HARDWARE, SimilarTrials
from planner.store.databases.database import Database, insert
from planner.store.databases.tables import studies, trials
from planner.store.event_log import record_event
from planner.store.machine_store import MachineStore, record_node
from planner.store.rows import find_document, study_columns, trial_columns, trial_from_row
from planner.store.selections import having, is_namesake, of_equal_use_case
from planner.store.similar_trials import find_similar
from planner.store.trial_reading import read_with_studies
from planner.trials.result import TrialResult
from planner.tuning.study import AddedTrial, EarlierTrials, LaterTrials, StoredTrial, Study


class StudyStore:
    """Studies of a database. Each method is one transaction, but for `begin_search`."""

    def __init__(
        self, database: Database, machines: MachineStore, now: Callable[[], datetime]
    ) -> None:
        self._database = database
        self._machines = machines
        self._now = now

    def get_or_create(self, study: Study) -> int:
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
                return self._add(connection, study)
            record_node(connection, study.node, study.fingerprint, self._now())
            this = studies.update().where(studies.c.id == found)
            connection.execute(this.values(facts=study_columns(study)["facts"]))
            record_event(connection, Topic.STUDY, found, self._now)
            return found

        return self._database.write(work)

    def begin_afresh(self, study: Study) -> int:
        """Create a new generation of a study; earlier trials stay as evidence of earlier plans."""
        return self._database.write(lambda connection: self._add(connection, study))

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

    def precision_choice(self, study_id: int) -> str | None:
        """Give what the searches of a study may choose; ``None`` where there is no such study."""
        query = select(studies.c.precision).where(studies.c.id == study_id)
        found = self._database.fetch(query, lambda row: str(row["precision"]))
        return found[0] if found else None

    def begin_search(self, study: Study, *, fresh: bool) -> EarlierTrials:
        """Give the study to continue, or a fresh one, with its trials."""
        study_id = self.begin_afresh(study) if fresh else self.get_or_create(study)
        newest = self._database.newest_number(trials)
        earlier = self._earlier(study_id, self.count_finished_trials(study_id), up_to=newest)
        if fresh:
            return earlier
        similar = find_similar(self._database, self._machines, study, up_to=newest)
        return replace(earlier, similar=similar)

    def find_for_use_case(self, use_case: str, node: str) -> dict[str, EarlierTrials]:
        """Give the latest study of each key, of a use case on a node.

        The use case may lie elsewhere by now, so those of equally named objects are among them.
        """
        query = (
            select(studies.c.id, studies.c.key, studies.c.finished_trials)
            .where(is_namesake(studies, use_case), studies.c.node == node)
            .order_by(studies.c.generation)
        )
        latest = {row["key"]: row for row in self._database.fetch(query, dict)}
        return {
            key: self._earlier(row["id"], row["finished_trials"]) for key, row in latest.items()
        }

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

    def add_trial(self, study_id: int, result: TrialResult) -> AddedTrial:
        """Save a finished trial and tell where. Call it once per trial."""

        def work(connection: Connection) -> AddedTrial:
            number = _next(connection, trials, "number", trials.c.study_id == study_id, first=0)
            values = {"study_id": study_id, "number": number, "created_at": self._now()}
            record_event(connection, Topic.STUDY, study_id, self._now)
            trial_id = insert(connection, trials, values | trial_columns(result))
            return AddedTrial(id=trial_id, number=number)

        return self._database.write(work)

    def trials(self, study_id: int) -> list[StoredTrial]:
        """Give the trials of a study in the order in which they ended."""
        query = select(trials).where(trials.c.study_id == study_id).order_by(trials.c.number)
        return self._database.fetch(query, trial_from_row)

    def all_trials(self, use_case: str | None = None, node: str | None = None) -> list[StoredTrial]:
        """Give the trials of every study, in the order in which they ended."""
        query = having(select(trials).join(studies), studies, node=node)
        query = of_equal_use_case(query, studies, studies.c.data, use_case)
        return read_with_studies(self._database, query.order_by(trials.c.id))

    def _earlier(self, study_id: int, finished: int, *, up_to: int | None = None) -> EarlierTrials:
        stored = [t for t in self.trials(study_id) if up_to is None or t.id <= up_to]
        return EarlierTrials(
            study_id=study_id,
            results=tuple(trial.result for trial in stored),
            finished=min(finished, len(stored)),
            newest=up_to or 0,
        )

    def _add(self, connection: Connection, study: Study) -> int:
        record_node(connection, study.node, study.fingerprint, self._now())
        generation = _next(connection, studies, "generation", studies.c.key == study.key, first=1)
        values = {"generation": generation, "created_at": self._now(), "finished_trials": 0}
        study_id = insert(connection, studies, values | study_columns(study))
        record_event(connection, Topic.STUDY, study_id, self._now)
        return study_id


def finish_search(connection: Connection, study_id: int, now: Callable[[], datetime]) -> None:
    """Mark a search as finished, so that the next one of its study is a new one."""
    count = select(func.count()).where(trials.c.study_id == study_id).scalar_subquery()
    this = studies.update().where(studies.c.id == study_id)
    connection.execute(this.values(finished_trials=count))
    record_event(connection, Topic.STUDY, study_id, now)


def _next(
    connection: Connection, table: Table, column: str, which: ColumnElement[bool], *, first: int
) -> int:
    """Give the number after the highest; within a write transaction no other can take it."""
    highest = connection.execute(select(func.max(table.c[column])).where(which)).scalar()
    return first if highest is None else int(highest) + 1
