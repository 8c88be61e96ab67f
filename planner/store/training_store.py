"""Training store: rows of ``trainings`` and of their hosts' use over time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime
from math import nan
from typing import Any

from sqlalchemy import Connection, select

from launch.reports import EpochDone
from planner.errors import NoTrainingError
from planner.records.event_record import Topic
from planner.records.training_record import TrainingRecord, TrainingStatus
from planner.records.usage_record import HostUsage
from planner.store.databases.database import Database, insert
from planner.store.databases.tables import trainings, usage
from planner.store.event_log import record_event
from planner.store.rows import record_columns
from planner.store.selections import having, newest
from probes import codec


class TrainingStore:
    """Trainings of a database."""

    def __init__(self, database: Database, now: Callable[[], datetime]) -> None:
        self._database = database
        self._now = now

    def add(self, record: TrainingRecord) -> TrainingRecord:
        """Save a training that begins; give it with its number."""
        values = record_columns(record)

        def work(connection: Connection) -> int:
            training_id = insert(connection, trainings, values)
            record_event(connection, Topic.TRAINING, training_id, self._now)
            return training_id

        return replace(record, id=self._database.write(work))

    def get(self, training_id: int) -> TrainingRecord:
        """Give one training.

        Raises:
            NoTrainingError: No training has this number.
        """
        query = select(trainings)
        found = self._database.find(query, trainings.c.id, training_id, training_from_row)
        if found is None:
            raise NoTrainingError(
                f"no training {training_id}: ddlplan runs list shows which there are"
            )
        return found

    def find(
        self,
        *,
        use_case: str | None = None,
        states: Collection[TrainingStatus] | None = None,
        before: int | None = None,
        most: int | None = None,
    ) -> list[TrainingRecord]:
        """Give trainings, the newest first of those below a number."""
        query = having(select(trainings), trainings, use_case=use_case, state=states)
        return self._database.fetch(newest(query, trainings, before, most), training_from_row)

    def find_with_data(
        self, use_case_digest: str, data: str | None, *, most: int
    ) -> list[TrainingRecord]:
        """Give the newest trainings of a use case, wherever it lay, with these data.

        Its digest is that of `CaseFacts`. The data are ``None`` where they are its own.
        """
        same = (trainings.c.use_case_digest == use_case_digest, trainings.c.data == data)
        query = newest(select(trainings).where(*same), trainings, None, most)
        return self._database.fetch(query, training_from_row)

    def update(
        self,
        training_id: int,
        *,
        epochs_done: Collection[EpochDone] | None = None,
        steps: int | None = None,
        checkpoint: str | None = None,
        weights: str | None = None,
        usage_series: Mapping[str, HostUsage] | None = None,
        state: TrainingStatus | None = None,
        error: str | None = None,
    ) -> None:
        """Save how far a training is, and that it was heard of; what is not given stays.

        Epochs are all so far, and a series of use is the whole one of its host. With a state it is
        over, as by `end`: killed between the two, a training would lack its end.
        """
        values: dict[str, Any] = {"steps": steps, "checkpoint": checkpoint, "weights": weights}
        if epochs_done is not None:
            values["epochs_done"] = codec.to_builtins(tuple(epochs_done), null_for_nan=True)
        given = {name: value for name, value in values.items() if value is not None}
        series = {host: codec.to_builtins(each) for host, each in (usage_series or {}).items()}
        this = trainings.update().where(trainings.c.id == training_id)

        def work(connection: Connection) -> None:
            connection.execute(this.values(heartbeat_at=self._now(), **given))
            for host, document in series.items():
                this_host = (usage.c.training_id == training_id) & (usage.c.host == host)
                changed = usage.update().where(this_host).values(series=document)
                if not connection.execute(changed).rowcount:
                    row = {"training_id": training_id, "host": host, "series": document}
                    connection.execute(usage.insert().values(**row))
            if state is not None:
                _end(connection, training_id, state, error, self._now())
            record_event(connection, Topic.TRAINING, training_id, self._now)

        self._database.write(work)

    def end(
        self,
        training_id: int,
        state: TrainingStatus,
        *,
        error: str | None = None,
        ended_at: datetime | None = None,
    ) -> bool:
        """Mark a training as over; false where it was over before, which then stays."""

        def work(connection: Connection) -> bool:
            changed = _end(connection, training_id, state, error, ended_at or self._now())
            if changed:
                record_event(connection, Topic.TRAINING, training_id, self._now)
            return changed

        return self._database.write(work)

    def usage(self, training_id: int) -> dict[str, HostUsage]:
        """Give what each host of a training used, by the names of the hosts."""
        query = select(usage.c.host, usage.c.series).where(usage.c.training_id == training_id)
        return dict(self._database.fetch(query.order_by(usage.c.host), usage_from_row))


def _end(
    connection: Connection,
    training_id: int,
    state: TrainingStatus,
    error: str | None,
    ended_at: datetime,
) -> bool:
    """Mark a training as over, unless it was before; tell whether it was not."""
    running = trainings.c.state == str(TrainingStatus.RUNNING)
    this = trainings.update().where(trainings.c.id == training_id, running)
    values = {"state": str(state), "error": error, "ended_at": ended_at}
    return connection.execute(this.values(**values)).rowcount > 0


def training_from_row(row: Mapping[str, Any]) -> TrainingRecord:
    """Read a row of ``trainings``."""
    epochs = [epoch_with_nan(epoch) for epoch in row["epochs_done"]]
    return codec.convert({**row, "epochs_done": epochs}, TrainingRecord, source="training")


def epoch_with_nan(epoch: Mapping[str, Any]) -> dict[str, Any]:
    """Give an epoch with NaN where JSON has null: PostgreSQL's JSON has no NaN."""
    metrics = {name: nan if v is None else v for name, v in epoch["metrics"].items()}
    loss = nan if epoch["train_loss"] is None else epoch["train_loss"]
    return {**epoch, "train_loss": loss, "metrics": metrics}


def usage_from_row(row: Mapping[str, Any]) -> tuple[str, HostUsage]:
    """Read a host and its series from a row of ``usage``."""
    return row["host"], codec.convert(row["series"], HostUsage, source="usage")
