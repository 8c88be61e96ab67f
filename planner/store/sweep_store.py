"""Sweep store: rows of ``sweeps`` and their points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, func, select

from planner.errors import ConflictError, NoSweepError
from planner.records.event_record import Topic
from planner.store.databases.database import Database, insert
from planner.store.databases.tables import sweep_points, sweeps
from planner.store.event_log import record_event
from planner.store.rows import record_columns
from planner.store.selections import having, newest
from planner.store.training_store import epoch_with_nan
from planner.sweeps.sweep_record import StoredSweep, SweepPoint, SweepRecord
from probes import codec

_COUNTED = ("num_points", "is_finished")


class SweepStore:
    """Sweeps of a database."""

    def __init__(self, database: Database, now: Callable[[], datetime]) -> None:
        self._database = database
        self._now = now

    def begin(self, record: SweepRecord, *, fresh: bool) -> StoredSweep:
        """Give the latest sweep with the same key and its points, or begin one.

        ``fresh`` begins one in any case.
        """
        values = record_columns(record) | {"key": record.key}
        for name in _COUNTED:
            del values[name]

        def work(connection: Connection) -> int:
            query = select(func.max(sweeps.c.id)).where(sweeps.c.key == record.key)
            found: int | None = None if fresh else connection.execute(query).scalar()
            if found is None:
                found = insert(connection, sweeps, values)
                record_event(connection, Topic.SWEEP, found, self._now)
            return found

        return self.get(self._database.write(work))

    def add_points(self, sweep_id: int, *points: SweepPoint) -> list[SweepPoint]:
        """Save finished points, all or none of them; give them with their numbers.

        Raises:
            ConflictError: Another process has stored one of them meanwhile.
        """
        rows = [
            record_columns(point, null_for_nan=True) | {"sweep_id": sweep_id, "batch": point.batch}
            for point in points
        ]
        query = select(sweep_points.c.batch, sweep_points.c.setting)
        query = query.where(sweep_points.c.sweep_id == sweep_id)

        def work(connection: Connection) -> list[int]:
            stored = {(row.batch, row.setting) for row in connection.execute(query)}
            for point in points:
                if (point.batch, point.setting) in stored:
                    raise ConflictError(
                        f"sweep {sweep_id}: another process trains it too, and has stored batch "
                        f"{point.batch}: let that one end, then give the command again"
                    )
            record_event(connection, Topic.SWEEP, sweep_id, self._now)
            return [insert(connection, sweep_points, row) for row in rows]

        numbers = self._database.write(work)
        return [replace(point, id=number) for point, number in zip(points, numbers, strict=True)]

    def get(self, sweep_id: int) -> StoredSweep:
        """Give a sweep with its points.

        Raises:
            NoSweepError: None has this number.
        """
        found = self._database.find(_with_counts(), sweeps.c.id, sweep_id, _read)
        if found is None:
            raise NoSweepError(f"no sweep {sweep_id}: ddlplan sweep list shows which there are")
        query = select(sweep_points).where(sweep_points.c.sweep_id == sweep_id)
        query = query.order_by(sweep_points.c.batch, sweep_points.c.setting)
        return StoredSweep(record=found, points=self._database.fetch(query, point_from_row))

    def find(
        self, use_case: str | None = None, *, before: int | None = None, most: int | None = None
    ) -> list[SweepRecord]:
        """Give sweeps without their points, the newest first of those below a number."""
        query = having(_with_counts(), sweeps, use_case=use_case)
        return self._database.fetch(newest(query, sweeps, before, most), _read)


def sweep_from_row(row: Mapping[str, Any]) -> SweepRecord:
    """Read a row of ``sweeps``."""
    return codec.convert(row, SweepRecord, source="sweep")


def point_from_row(row: Mapping[str, Any]) -> SweepPoint:
    """Read a row of ``sweep_points``."""
    epochs = [epoch_with_nan(epoch) for epoch in row["epochs"]]
    return codec.convert({**row, "epochs": epochs}, SweepPoint, source="sweep point")


def _with_counts() -> Select[Any]:
    points = select(func.count()).where(sweep_points.c.sweep_id == sweeps.c.id).scalar_subquery()
    return select(sweeps, points.label("num_points"))


def _read(row: Mapping[str, Any]) -> SweepRecord:
    record = sweep_from_row(row)
    return replace(record, is_finished=record.num_points >= record.size)
