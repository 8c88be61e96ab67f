"""SQLite: a database in a file, which several processes of one machine write at once.

Settings as SQLite's authors document them for several writers:

* Every write transaction is ``BEGIN IMMEDIATE``. A plain ``BEGIN`` takes the write lock only at
  the first write, and fails at once, whatever the timeout, when another writer came in between.
  Python's driver begins transactions by itself and cannot do this; SQLAlchemy documents how to
  take over: https://docs.sqlalchemy.org/en/20/dialects/sqlite.html#pysqlite-serializable.
* A DELETE journal: WAL loses data with several writers in SQLite 3.7.0 to 3.51.2,
  https://www.sqlite.org/wal.html#walresetbug. With EXTRA sync: a transaction is committed when its
  journal is removed, and with FULL sync a loss of power soon after may bring the journal back,
  which undoes what was acknowledged, https://www.sqlite.org/pragma.html#pragma_synchronous.
* Writers queue (`launch.system.folder_queue`): of many that only wait for SQLite's own lock, some
  wait for seconds.
* No connection outlives its transaction, so none is inherited by a worker and no lock is held
  while a trial runs. Signals wait for its end: a Ctrl-C while SQLAlchemy closes a connection leaves
  it open, and locked, for as long as the traceback lives, and what is then stored waits for itself.
  SQLite's own wait for a lock cannot be ended, so it is short and comes again.
* A commit that waits for readers is tried again, not its whole transaction: SQLite lets no new
  reader begin meanwhile, https://www.sqlite.org/lockingv3.html, "Writer starvation".
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from sqlalchemy import Connection, Engine, NullPool, create_engine, event, text
from sqlalchemy.exc import DBAPIError

from launch.system.folder_queue import queued
from launch.system.session import defer_signals, has_deferred_signal
from planner.errors import StoreCorruptError, StoreError, StoreLockedError, StoreUnwritableError
from planner.store.databases.database import Database, Work, read_json, write_json
from planner.store.databases.tables import metadata

T = TypeVar("T")

_BEGIN = "ddlplan_begin"
_TO_READ, _TO_WRITE = "BEGIN", "BEGIN IMMEDIATE"

_PRAGMAS = ("journal_mode=DELETE", "synchronous=EXTRA", "foreign_keys=ON", "trusted_schema=OFF")
"""The last: https://www.sqlite.org/security.html, "Untrusted SQLite Database Files"."""

_WAIT_S, _PAUSE_S = 0.5, 0.02
"""Of one attempt for a lock; the pause is for locks that SQLite does not wait for."""

_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}
_MISSING = re.compile("no such (table|column)")
"""SQLite has no code of its own for a damaged schema."""

_CONTRADICTIONS = {
    sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY,
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
    sqlite3.SQLITE_CONSTRAINT_UNIQUE,
}
"""What a transaction has read does not fit to what is there: an index is damaged."""

_LONGEST_REASON = 300
"""SQLite's messages may repeat whole damaged texts."""

_UNDECODABLE = "Could not decode to UTF-8"
"""Python's driver says so, without a code."""

_UNWRITABLE = {
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_TOOBIG,
}


class SqliteDatabase(Database):
    """One database file, which must be there."""

    def __init__(self, path: Path, *, lock_timeout_s: float) -> None:
        super().__init__(str(path), _engine(path.absolute(), min(lock_timeout_s, _WAIT_S)))
        self._path = path
        self._lock_timeout_s = lock_timeout_s

    def _read(self, work: Work[T]) -> T:
        return self._run(_TO_READ, work)

    def write(self, work: Work[T]) -> T:
        with queued(self._path.absolute().parent, self._lock_timeout_s):
            return self._run(_TO_WRITE, work)

    def kind(self, connection: Connection) -> str:
        return f"SQLite {connection.execute(text('SELECT sqlite_version()')).scalar()}"

    def size_bytes(self, connection: Connection) -> int:
        return self._path.stat().st_size

    def find_damage(self, connection: Connection) -> Iterator[str]:
        for (line,) in connection.execute(text("PRAGMA integrity_check")):
            if line != "ok":
                yield " ".join(line.split())

    def last_numbers(self, connection: Connection) -> dict[str, int]:
        # Only tables whose numbers are never given again are in there.
        kept = connection.execute(text("SELECT name, seq FROM sqlite_sequence"))
        return {str(name): int(number) for name, number in kept}

    def set_last_numbers(self, connection: Connection, numbers: Mapping[str, int]) -> None:
        own = self.last_numbers(connection)
        for table in metadata.sorted_tables:
            number = max(numbers.get(table.name, 0), own.get(table.name, 0))
            if number and table.dialect_options["sqlite"]["autoincrement"]:
                values = {"name": table.name, "number": number}
                connection.execute(text("DELETE FROM sqlite_sequence WHERE name = :name"), values)
                connection.execute(
                    text("INSERT INTO sqlite_sequence VALUES (:name, :number)"), values
                )

    def _run(self, begin: str, work: Work[T]) -> T:
        """Try until it succeeds, fails for good, or another program has locked it for too long."""
        give_up = time.monotonic() + self._lock_timeout_s
        while True:
            try:
                with (
                    defer_signals(),
                    self._engine.connect() as connection,
                    connection.execution_options(**{_BEGIN: begin}).begin(),
                ):
                    result = work(connection)
                    if begin == _TO_WRITE:
                        self._commit(connection, give_up)
                    return result
            except UnicodeDecodeError as error:  # of the driver, at a message with damaged text
                raise self._corrupt(str(error)) from error
            except DBAPIError as error:
                if (ours := self._our_error(error.orig)) is None:
                    raise
                has_waited = time.monotonic() >= give_up or has_deferred_signal()
                if has_waited or not isinstance(ours, StoreLockedError):
                    raise ours from error
            time.sleep(_PAUSE_S)

    def _commit(self, connection: Connection, give_up: float) -> None:
        """Commit, once those have ended that were reading before."""
        while True:
            try:
                connection.exec_driver_sql("COMMIT")
            except DBAPIError as error:
                is_locked = isinstance(self._our_error(error.orig), StoreLockedError)
                if not is_locked or time.monotonic() >= give_up or has_deferred_signal():
                    raise
            else:
                return
            time.sleep(_PAUSE_S)

    def _our_error(self, error: BaseException | None) -> StoreError | None:
        # The upper bits tell kinds of one error apart.
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
        where = f"database {self.name}"
        if code in _LOCKED:
            return StoreLockedError(
                f"{where}: another program has locked it for more than "
                f"{self._lock_timeout_s:g} s: end that program, then try again"
            )
        said = str(error)
        contradicts = getattr(error, "sqlite_errorcode", None) in _CONTRADICTIONS
        if code in _CORRUPT or contradicts or _MISSING.match(said) or said.startswith(_UNDECODABLE):
            return self._corrupt(said)
        if code in _UNWRITABLE:
            return StoreUnwritableError(
                f"{where}: {error}: check its permissions and the free space, "
                "or choose another place with --db"
            )
        return None

    def _corrupt(self, said: str) -> StoreCorruptError:
        brief = " ".join(said.split())[:_LONGEST_REASON]
        return StoreCorruptError(
            f"database {self.name}: {brief}: restore a copy, or choose another with --db"
        )


@lru_cache(maxsize=16)
def _engine(path: Path, wait_s: float) -> Engine:
    """Give the engine of a database, the same one each time: it keeps what its queries compile to.

    It holds no connection, so that any thread may use it, and a process that is forked too.
    """
    engine = create_engine(
        "sqlite://",
        creator=partial(_connect, path, wait_s),
        poolclass=NullPool,
        json_deserializer=read_json,
        json_serializer=write_json,
    )

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options()[_BEGIN])

    return engine


def _connect(path: Path, wait_s: float) -> sqlite3.Connection:
    # mode=rw: never make a file, because one that SQLite makes is readable by everyone.
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=rw",
        uri=True,
        timeout=wait_s,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection
