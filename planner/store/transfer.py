"""Transfer of everything from one database to another, between SQLite and PostgreSQL too."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Table, func, select

from planner.errors import ConflictError, StoreCorruptError
from planner.records.database_record import CopiedTable
from planner.store.databases.database import UNREADABLE, Database, plain_row
from planner.store.databases.migrations import STEPS, read_version
from planner.store.databases.opening import open_database, opened_to_fill
from planner.store.databases.tables import schema
from planner.store.inspection import our_tables

_ROWS_AT_ONCE = 200


def copy_database(source_url: str, target_url: str) -> list[CopiedTable]:
    """Copy everything into a database that is empty or still to be made.

    In one transaction: a copy that fails or is killed leaves the target as it was. Every table is
    read back and compared before that transaction is committed. New rows of the target get
    numbers that none of the source ever had.

    Raises:
        StoreUrlError: One of the two names no database.
        NoDatabaseError: There is no source.
        ConflictError: The target has rows.
        StoreError: One of the two cannot be used.
    """
    source = open_database(source_url, create=False)
    with opened_to_fill(target_url) as target:

        def write(connection: Connection) -> list[CopiedTable]:
            _prepare(target, connection)
            copied = source.read(lambda given: [_copy(given, connection, t) for t in our_tables()])
            _compare(target, connection, copied)
            last = source.read(source.last_numbers)
            target.set_last_numbers(connection, last)
            return copied

        return target.write(write)


def _prepare(target: Database, connection: Connection) -> None:
    """Create the tables where there are none; refuse any that has rows."""
    newest = len(STEPS) + 1
    found = read_version(connection, target)
    if found is None:
        target.create_tables(connection)
        connection.execute(schema.insert().values(version=newest))
        return
    if found != newest:
        raise ConflictError(
            f"database {target.name}: version={found}, this ddlplan's is {newest}: "
            "name a database that is still to be made"
        )
    filled = [t.name for t in our_tables() if connection.execute(select(t.c.id).limit(1)).first()]
    if filled:
        raise ConflictError(
            f"database {target.name}: it has {', '.join(filled)} already: "
            "name an empty one, or one that is still to be made"
        )


def _copy(source: Connection, target: Connection, table: Table) -> CopiedTable:
    digest = hashlib.sha256()
    count = 0
    rows = _rows(source, table)
    while batch := list(islice(rows, _ROWS_AT_ONCE)):
        for row in batch:
            digest.update(_canonical(row))
        count += len(batch)
        target.execute(table.insert(), batch)
    return CopiedTable(name=table.name, rows=count, digest=digest.hexdigest())


def _compare(target: Database, connection: Connection, copied: list[CopiedTable]) -> None:
    """Read everything back, and hold it against what was read from the source."""
    for table, expected in zip(our_tables(), copied, strict=True):
        digest = hashlib.sha256()
        for row in _rows(connection, table):
            digest.update(_canonical(row))
        count = connection.execute(select(func.count()).select_from(table)).scalar()
        if (count, digest.hexdigest()) != (expected.rows, expected.digest):
            raise StoreCorruptError(
                f"database {target.name}: {table.name} has {count} rows that are not those "
                f"of the source ({expected.rows}): nothing was copied"
            )


def _rows(connection: Connection, table: Table) -> Iterator[dict[str, Any]]:
    query = select(table).order_by(table.c.id).execution_options(yield_per=_ROWS_AT_ONCE)
    try:
        for row in connection.execute(query).mappings():
            yield plain_row(row)
    except UNREADABLE as error:
        raise StoreCorruptError(
            f"{table.name}: a row cannot be read ({error}): ddlplan db check says which"
        ) from error


def _canonical(row: dict[str, Any]) -> bytes:
    text = json.dumps(row, sort_keys=True, separators=(",", ":"), default=datetime.isoformat)
    return text.encode() + b"\n"
