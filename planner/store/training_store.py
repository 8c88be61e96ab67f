"""Training store: rows of ``trainings`` and of their hosts' use over time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import select

from launch.reports import EpochDone
from planner.errors import NoTrainingError
from planner.records.event_record import Topic
from planner.records.training_record import TrainingRecord, TrainingStatus
from planner.store.database import Database
from planner.store.event_log import record_event
from planner.store.tables import trainings, usage
from probes import codec

_MAX_ID = 2**63 - 1


class TrainingStore:
    """Trainings of a database."""

    def __init__(self, database: Database, now: Callable[[], datetime]) -> None:
        self._database = database
        self._now = now

    def add(self, record: TrainingRecord) -> TrainingRecord:
        """Save a training that begins; give it with its number."""
        values: dict[str, Any] = codec.to_builtins(record)
        del values["id"]
        values |= {"started_at": record.started_at, "ended_at": record.ended_at}
        with self._database.write() as connection:
            key = connection.execute(trainings.insert().values(**values)).inserted_primary_key
            assert key is not None  # an insert of one row always gives it
            record_event(connection, Topic.TRAINING, key[0], self._now)
        return replace(record, id=int(key[0]))

    def get(self, training_id: int) -> TrainingRecord:
        """Give one training.

        Raises:
            NoTrainingError: No training has this number.
        """
        found = []
        if 0 < training_id <= _MAX_ID:
            query = select(trainings).where(trainings.c.id == training_id)
            found = self._database.fetch(query, _from_row)
        if not found:
            raise NoTrainingError(
                f"no training {training_id}: ddlplan runs list shows which there are"
            )
        return found[0]

    def find(
        self,
        *,
        use_case: str | None = None,
        states: Collection[TrainingStatus] | None = None,
        before: int | None = None,
        most: int | None = None,
    ) -> list[TrainingRecord]:
        """Give trainings, the newest first.

        Args:
            use_case: Of this use case, as it was spelled.
            states: In one of these states.
            before: With a lower number.
            most: At most so many.
        """
        query = select(trainings).order_by(trainings.c.id.desc()).limit(most)
        if use_case is not None:
            query = query.where(trainings.c.use_case == use_case)
        if states is not None:
            query = query.where(trainings.c.state.in_([str(state) for state in states]))
        if before is not None:
            query = query.where(trainings.c.id < before)
        return self._database.fetch(query, _from_row)

    def update(
        self,
        training_id: int,
        *,
        epochs_done: Collection[EpochDone] | None = None,
        steps: int | None = None,
        checkpoint: str | None = None,
        weights: str | None = None,
        usage_series: Mapping[str, Any] | None = None,
    ) -> None:
        """Save how far a training is; what is not given stays.

        Args:
            training_id: Which.
            epochs_done: All of its epochs so far.
            steps: That it has made.
            checkpoint: The last one.
            weights: File of its weights.
            usage_series: For some of its hosts, the whole series so far.
        """
        values: dict[str, Any] = {"steps": steps, "checkpoint": checkpoint, "weights": weights}
        if epochs_done is not None:
            values["epochs_done"] = codec.to_builtins(tuple(epochs_done), null_for_nan=True)
        given = {name: value for name, value in values.items() if value is not None}
        with self._database.write() as connection:
            if given:
                this = trainings.update().where(trainings.c.id == training_id)
                connection.execute(this.values(**given))
            for host, series in (usage_series or {}).items():
                this_host = (usage.c.training_id == training_id) & (usage.c.host == host)
                connection.execute(usage.delete().where(this_host))
                row = {"training_id": training_id, "host": host, "series": series}
                connection.execute(usage.insert().values(**row))
            record_event(connection, Topic.TRAINING, training_id, self._now)

    def end(
        self,
        training_id: int,
        state: TrainingStatus,
        *,
        error: str | None = None,
        ended_at: datetime | None = None,
    ) -> bool:
        """Mark a training as over; false where it was over before, which then stays."""
        running = trainings.c.state == str(TrainingStatus.RUNNING)
        this = trainings.update().where(trainings.c.id == training_id, running)
        values = {"state": str(state), "error": error, "ended_at": ended_at or self._now()}
        with self._database.write() as connection:
            changed = connection.execute(this.values(**values)).rowcount > 0
            if changed:
                record_event(connection, Topic.TRAINING, training_id, self._now)
        return changed

    def usage(self, training_id: int) -> dict[str, Any]:
        """Give the series of use of each host of a training."""
        query = select(usage.c.host, usage.c.series).where(usage.c.training_id == training_id)
        rows = self._database.fetch(query.order_by(usage.c.id), dict)
        return {row["host"]: row["series"] for row in rows}


def _from_row(row: Mapping[str, Any]) -> TrainingRecord:
    return codec.convert(row, TrainingRecord, source="training")
