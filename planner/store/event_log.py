"""Event log: what changed in the database, written in the transaction that changes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from planner.records.event_record import EventRecord, Topic
from planner.store.databases.database import Database, insert
from planner.store.databases.tables import events
from planner.store.selections import newest
from probes import codec

MOST_EVENTS = 10_000
"""Older ones are removed: a reader that was away for longer reads everything anew."""

_PRUNED_EVERY = 256
_MOST_READ = 1000


def record_event(
    connection: Connection, topic: Topic, subject_id: int, now: Callable[[], datetime]
) -> None:
    """Add a change to the log, within the transaction of ``connection``."""
    values = {"created_at": now(), "topic": str(topic), "subject_id": subject_id}
    event_id = insert(connection, events, values)
    if event_id % _PRUNED_EVERY == 0:
        connection.execute(events.delete().where(events.c.id <= event_id - MOST_EVENTS))


class EventLog:
    """Reads the log of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def newest(self) -> int:
        """Give the number of the newest event; 0 where there is none."""
        return self._database.newest_number(events)

    def find_newest(self) -> EventRecord | None:
        """Give the newest event; ``None`` where there is none."""
        found = self._database.fetch(newest(select(events), events, None, 1), event_from_row)
        return found[0] if found else None

    def after(self, event_id: int) -> list[EventRecord]:
        """Give the events after one, oldest first."""
        query = select(events).where(events.c.id > event_id).order_by(events.c.id).limit(_MOST_READ)
        return self._database.fetch(query, event_from_row)

    def has(self, event_id: int) -> bool:
        """Whether an event is still in the log, so that `after` gives all that came later."""
        query = select(events.c.id).where(events.c.id == event_id)
        return bool(self._database.fetch(query, lambda row: int(row["id"])))


def event_from_row(row: Mapping[str, Any]) -> EventRecord:
    """Read a row of ``events``."""
    return codec.convert(row, EventRecord, source="event")
