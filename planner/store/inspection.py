"""Inspection of a database: what it holds, and whether all of it is whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection, Table, and_, func, select

from planner.errors import StoreError
from planner.quantities import format_count
from planner.records.database_record import CheckRecord, DatabaseRecord, TableRecord
from planner.records.study_record import StudyRecord
from planner.store.databases import tables
from planner.store.databases.database import UNREADABLE, Database, plain_row
from planner.store.databases.opening import open_database
from planner.store.databases.tables import UtcTime, metadata
from planner.store.event_log import event_from_row
from planner.store.job_store import job_from_row
from planner.store.rows import links_from_row, plan_from_row, trial_from_row
from planner.store.sweep_store import point_from_row, sweep_from_row
from planner.store.training_store import training_from_row, usage_from_row
from probes import codec

_MOST_FAULTS = 1000
_DOCUMENTS: Mapping[str, Callable[[dict[str, Any]], object]] = {
    "trials": trial_from_row,
    "plans": plan_from_row,
    "links": links_from_row,
    "trainings": training_from_row,
    "usage": usage_from_row,
    "sweeps": sweep_from_row,
    "sweep_points": point_from_row,
    "jobs": job_from_row,
    "events": event_from_row,
    "studies": lambda row: codec.convert({**row, "facts": None}, StudyRecord, source="study"),
}
"""How rows become values, where that can fail. Probes and facts in another release's form count as
none, so they need only be documents."""


def inspect_database(url: str) -> DatabaseRecord:
    """Say what a database is and holds.

    Raises:
        StoreUrlError: ``url`` names no database.
        NoDatabaseError: There is none.
        StoreError: It cannot be used.
    """
    database = open_database(url, create=False)

    def work(connection: Connection) -> DatabaseRecord:
        version = connection.execute(select(tables.schema.c.version)).scalar_one()
        return DatabaseRecord(
            name=database.name,
            kind=database.kind(connection),
            version=int(version),
            size_bytes=database.size_bytes(connection),
            tables=tuple(_describe(connection, table) for table in our_tables()),
        )

    return database.read(work)


def check_database(url: str) -> CheckRecord:
    """Read everything in a database, and look for what is damaged or does not belong together.

    Raises:
        StoreUrlError: ``url`` names no database.
        NoDatabaseError: There is none.
        StoreError: It cannot be opened, or damage keeps it from being read to the end.
    """
    database = open_database(url, create=False)
    rows = 0
    faults = database.read(lambda connection: list(database.find_damage(connection)))[:_MOST_FAULTS]
    for table in our_tables():
        try:
            count, unreadable = _find_unreadable(database, table)
            rows, faults = rows + count, faults + unreadable
            faults += database.read(partial(_find_loose_ends, table=table))
        except StoreError as error:
            faults.append(f"{table.name}: {error}")
    try:
        faults += database.read(lambda connection: list(_find_gaps(connection)))
    except StoreError as error:
        faults.append(str(error))
    return CheckRecord(name=database.name, rows=rows, faults=tuple(faults[:_MOST_FAULTS]))


def our_tables() -> list[Table]:
    """Give the tables with rows of evidence, those first that others refer to."""
    return [table for table in metadata.sorted_tables if table is not tables.schema]


def _describe(connection: Connection, table: Table) -> TableRecord:
    times = [column for column in table.c if isinstance(column.type, UtcTime)]
    query = select(func.count(), *(func.max(column) for column in times)).select_from(table)
    count, *found = connection.execute(query).one()
    latest: list[datetime] = [time for time in found if time is not None]
    return TableRecord(name=table.name, rows=count, changed_at=max(latest, default=None))


def _find_unreadable(database: Database, table: Table) -> tuple[int, list[str]]:
    """Count the rows, and find those that cannot be read; each is read by itself.

    All in one transaction: between two, another program may remove a row.
    """
    decode = _DOCUMENTS.get(table.name, dict)

    def work(connection: Connection) -> tuple[int, list[str]]:
        faults = []
        ids = connection.execute(select(table.c.id).order_by(table.c.id)).scalars().all()
        for row_id in ids:
            try:
                found = connection.execute(select(table).where(table.c.id == row_id))
                if (row := found.mappings().first()) is None:
                    faults.append(f"{table.name} {row_id}: cannot be found by its number")
                else:
                    decode(plain_row(row))
            except UNREADABLE as error:
                faults.append(f"{table.name} {row_id}: cannot be read: {error}")
        return len(ids), faults

    return database.read(work)


def _find_loose_ends(connection: Connection, table: Table) -> list[str]:
    """Find references to rows that are not there."""
    faults: list[str] = []
    for key in sorted(table.foreign_keys, key=lambda key: key.parent.name):
        column, there = key.parent, key.column
        other = there.table.alias("other")
        is_lost = and_(column.is_not(None), other.c[there.name].is_(None))
        query = (
            select(table.c.id, column)
            .outerjoin(other, other.c[there.name] == column)
            .where(is_lost)
            .order_by(table.c.id)
        )
        faults += [
            f"{table.name} {row_id}: {column.name}={lost}, which is not in {there.table.name}"
            for row_id, lost in connection.execute(query)
        ]
    return faults


def _find_gaps(connection: Connection) -> Iterator[str]:
    """Find studies some of whose trials are missing."""
    trials, studies = tables.trials, tables.studies
    query = (
        select(trials.c.study_id, func.count(), func.max(trials.c.number) + 1)
        .group_by(trials.c.study_id)
        .order_by(trials.c.study_id)
    )
    counts = {}
    for study_id, count, numbered in connection.execute(query):
        counts[study_id] = count
        if count != numbered:
            yield f"studies {study_id}: {format_count(count, 'trial')}, numbered up to {numbered}"
    query = select(studies.c.id, studies.c.finished_trials).order_by(studies.c.id)
    for study_id, finished in connection.execute(query):
        if finished > counts.get(study_id, 0):
            yield (
                f"studies {study_id}: finished_trials={finished}, "
                f"but it has {format_count(counts.get(study_id, 0), 'trial')}"
            )
