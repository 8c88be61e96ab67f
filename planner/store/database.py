"""Transactions of an SQLite database that several processes write at once.

Settings as SQLite's authors document them for several writers:

* Every write transaction is ``BEGIN IMMEDIATE``. A plain ``BEGIN`` takes the write lock only at
  the first write, and fails at once, whatever the timeout, when another writer came in between.
  Python's driver begins transactions by itself and cannot do this; SQLAlchemy documents how to
  take over: https://docs.sqlalchemy.org/en/20/dialects/sqlite.html#pysqlite-serializable.
* A DELETE journal with FULL sync: WAL loses data with several writers in SQLite 3.7.0 to 3.51.2,
  https://www.sqlite.org/wal.html#walresetbug.
* No connection outlives its transaction, so none is inherited by a worker and no lock is held
  while a trial runs.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from sqlalchemy import Connection, Engine, NullPool, Select, create_engine, event
from sqlalchemy.exc import DBAPIError

from launch.errors import InvalidPlanError
from planner.errors import (
    StoreCorruptError,
    StoreError,
    StoreLockedError,
    StoreUnwritableError,
)
from probes.errors import InvalidDocumentError, InvalidMeasurementError

T = TypeVar("T")

_BEGIN = "ddlplan_begin"

_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_CORRUPT = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_FORMAT,
}
_MISSING = re.compile("no such (table|column)")
"""SQLite has no code of its own for a damaged schema."""

_UNWRITABLE = {
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_TOOBIG,
}


class Database:
    """One database file: transactions, with SQLite's errors as subclasses of `StoreError`."""

    def __init__(self, path: Path, *, lock_timeout_s: float) -> None:
        self.path = path
        self._lock_timeout_s = lock_timeout_s
        self._engine = _engine(path, lock_timeout_s)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Give a connection that sees one state of the database."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Give a connection whose writes are all committed when the block ends, or none."""
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    def fetch(self, query: Select[Any], decode: Callable[[dict[str, Any]], T]) -> list[T]:
        """Read rows as values.

        Raises:
            StoreCorruptError: A row cannot be decoded.
        """
        with self.read() as connection:
            try:
                rows = connection.execute(query).mappings()
                # The names of columns are a class of their own, a kind of text.
                return [decode({str(name): row[name] for name in row}) for row in rows]
            except (
                InvalidDocumentError,
                InvalidMeasurementError,
                InvalidPlanError,
                KeyError,
                TypeError,
                ValueError,
            ) as error:
                raise StoreCorruptError(
                    f"database {self.path}: a row cannot be read ({error}): "
                    "restore a copy, or choose another file with --db"
                ) from error

    def close(self) -> None:
        """Close the database."""
        self._engine.dispose()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        try:
            with (
                self._engine.connect() as connection,
                connection.execution_options(**{_BEGIN: begin}).begin(),
            ):
                yield connection
        except DBAPIError as error:
            if (ours := self._our_error(error.orig)) is None:
                raise
            raise ours from error

    def _our_error(self, error: BaseException | None) -> StoreError | None:
        # The upper bits tell kinds of one error apart.
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
        where = f"database {self.path}"
        if code in _LOCKED:
            return StoreLockedError(
                f"{where}: another program has locked it for more than "
                f"{self._lock_timeout_s:g} s: end that program, then try again"
            )
        if code in _CORRUPT or _MISSING.match(str(error)):
            return StoreCorruptError(
                f"{where}: {error}: restore a copy, or choose another file with --db"
            )
        if code in _UNWRITABLE:
            return StoreUnwritableError(
                f"{where}: {error}: check its permissions and the free space, "
                "or choose another place with --db"
            )
        return None


def _engine(path: Path, lock_timeout_s: float) -> Engine:
    engine = create_engine(
        "sqlite://",
        creator=partial(_connect, path, lock_timeout_s),
        poolclass=NullPool,
        json_serializer=partial(json.dumps, allow_nan=False, separators=(",", ":")),
    )

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options()[_BEGIN])

    return engine


def _connect(path: Path, lock_timeout_s: float) -> sqlite3.Connection:
    # mode=rw: never make a file, because one that SQLite makes is readable by everyone.
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode=rw",
        uri=True,
        timeout=lock_timeout_s,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        for pragma in ("journal_mode=DELETE", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection
