"""PostgreSQL: a database on a server, which the machines of a team write at once.

* Every write transaction first waits for the database's one lock of ours,
  ``pg_advisory_xact_lock``. Under READ COMMITTED each later statement sees what was committed
  before the lock was given, so that reading and then writing is as safe as SQLite's
  ``BEGIN IMMEDIATE``; under SERIALIZABLE it would see the state from before the wait.
* A server that is stopped and started again is waited for, and what it had not committed is done
  once more. Where the connection was lost during the commit nobody knows which it was. So each
  transaction leaves a mark of its own, and is done again only if its mark is not there. The
  server's own ``pg_xact_status`` cannot tell after a crash: numbers of transactions that never
  reached the disk are given again.
* No connection outlives its transaction, so none is inherited by a worker, and a server is asked
  by as many at once as write at once.

The password comes from where libpq finds it: a password file or a service file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import lru_cache
from typing import Any, TypeVar
from uuid import uuid4

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    MetaData,
    NullPool,
    Table,
    create_engine,
    func,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import TIMESTAMP
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError, ProgrammingError

from launch.packages.install_command import install_command
from launch.system.session import has_deferred_signal
from planner.errors import (
    PlannerError,
    StoreCorruptError,
    StoreLockedError,
    StoreUnreachableError,
    StoreUnwritableError,
    StoreUrlError,
)
from planner.store.databases.database import Database, Work, read_json, write_json
from planner.store.databases.tables import PlainText, metadata, schema, trials

T = TypeVar("T")

_LOCK = 0x64646C706C616E
"""Number of our lock: "ddlplan". Each database of a server has its own."""

_STANDSTILL_S = 60
"""After so long the server ends a write transaction from which it hears nothing: a machine that
lost its power must not keep the others out until TCP notices, which takes hours."""

_CONNECTION = {
    "application_name": "ddlplan",
    "client_encoding": "utf8",
    "connect_timeout": 10,
    # A server that vanished without a word is noticed after so long, and not after two hours.
    "keepalives_idle": 20,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 40_000,
}

_SECRETS = ("password", "passwd", "secret", "scram_")
"""Parts of the names of libpq's options whose values nobody may see, whatever their case: one that
is written wrongly is an error, which repeats the address."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0

_AGAIN = frozenset(["40001", "40P01"])
"""Conflicts with other transactions: serialization failure, deadlock."""

_LOCKED = frozenset(["55P03", "57014"])
_CORRUPT = frozenset(["XX001", "XX002", "42P01", "42703", "42804", "23503", "23505"])
"""Damaged pages and indexes; tables and columns that are missing or of another type; rows that do
not fit to what the same transaction has read."""

_GONE = ("08", "57P", "25P03", "53300")
"""Connection lost; server stopping, crashed or starting; transaction of a program that stood still
for too long; more connections than the server allows."""

_UNWRITABLE = ("22P05", "25006", "42501", "3F000", "53", "54", "58", "28", "3D")
"""Encoding, a standby, rights, no schema, resources, limits, the system; login and database."""

_commits = Table(
    "ddlplan_commits",
    MetaData(),
    Column("token", PlainText, primary_key=True),
    Column("at", TIMESTAMP(timezone=True), nullable=False, server_default=func.now()),
)
"""Mark of the latest transaction of each writer; a later one takes the place of its earlier."""


class PostgresDatabase(Database):
    """One database of a server.

    Args:
        url: ``postgresql://user@host/name``, also with ``+psycopg``.
        lock_timeout_s: How long each transaction waits for those of other programs.
        outage_s: How long a transaction waits for a server that does not answer any more. One
            that has not answered yet is not waited for.

    Raises:
        StoreUrlError: The address holds a password or cannot be read, or the driver is missing.
    """

    def __init__(self, url: str, *, lock_timeout_s: float, outage_s: float) -> None:
        address = parse_address(url)
        super().__init__(address.render_as_string(), _engine(address))
        self._lock_timeout_s = lock_timeout_s
        self._outage_s = outage_s
        self._has_answered = False
        self._acknowledged: str | None = None
        """Mark of the last transaction of which it is known that it was committed."""

    def _read(self, work: Work[T]) -> T:
        def attempt() -> T:
            with self._begin(isolation_level="REPEATABLE READ", postgresql_readonly=True) as found:
                return work(found)

        return self._insist(attempt)

    def write(self, work: Work[T]) -> T:
        token = uuid4().hex
        results: list[T] = []
        """What the last attempt gave that came to its commit."""

        def attempt() -> T:
            with self._begin(isolation_level="READ COMMITTED") as connection:
                self._lock(connection)
                # An attempt that still runs on the server has the lock, so by now it is over.
                if results and _has_mark(connection, token):
                    return results[0]
                results[:] = [work(connection)]
                self._mark(connection, token)
            return results[0]

        result = self._insist(attempt)
        self._acknowledged = token
        return result

    def kind(self, connection: Connection) -> str:
        version = str(connection.execute(text("SHOW server_version")).scalar())
        return f"PostgreSQL {version.split()[0]}"

    def size_bytes(self, connection: Connection) -> int:
        size = connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one()
        return int(size)

    def find_damage(self, connection: Connection) -> Iterator[str]:
        # Reading every row, which follows, reads every page; its checksums are the server's.
        yield from ()

    def last_numbers(self, connection: Connection) -> dict[str, int]:
        found = {}
        for table in _numbered_tables():
            sequence = _sequence(connection, table)
            query = text(f"SELECT last_value, is_called FROM {sequence}")  # noqa: S608 - the server's
            number, is_called = connection.execute(query).one()
            found[table.name] = int(number) if is_called else 0
        return found

    def set_last_numbers(self, connection: Connection, numbers: Mapping[str, int]) -> None:
        for table in _numbered_tables():
            highest = connection.execute(select(func.max(table.c.id))).scalar() or 0
            if number := max(numbers.get(table.name, 0), highest):
                connection.execute(select(func.setval(_sequence(connection, table), number)))

    def create_tables(self, connection: Connection) -> None:
        encoding = connection.execute(text("SHOW server_encoding")).scalar()
        if encoding != "UTF8":
            raise StoreUnwritableError(
                f"database {self.name}: encoding={encoding}, needed is UTF8: "
                "make it with createdb --encoding UTF8 --template template0"
            )
        metadata.create_all(connection)
        _commits.create(connection, checkfirst=True)

    def check_writable(self) -> None:
        """Check that tables can be written, or created where there are none, without doing it.

        Raises:
            StoreError: They cannot be.
        """
        query = text(
            "SELECT NOT pg_is_in_recovery() AND coalesce(CASE"
            f" WHEN to_regclass('{schema.name}') IS NULL"
            " THEN has_schema_privilege(current_schema(), 'CREATE')"
            f" ELSE has_table_privilege('{trials.name}', 'INSERT') END, false)"
        )
        if not self.read(lambda connection: connection.execute(query).scalar()):
            raise StoreUnwritableError(
                f"database {self.name}: its user may not write it: use the one that owns it, "
                "or choose another with --db"
            )

    @contextmanager
    def _begin(self, **options: Any) -> Iterator[Connection]:
        with (
            self._engine.connect() as connection,
            connection.execution_options(**options).begin(),
        ):
            yield connection

    def _lock(self, connection: Connection) -> None:
        timeout_ms = max(1, round(1000 * self._lock_timeout_s))
        connection.exec_driver_sql(
            f"SET LOCAL lock_timeout = {timeout_ms};"
            f"SET LOCAL idle_in_transaction_session_timeout = {1000 * _STANDSTILL_S};"
            f"SELECT pg_advisory_xact_lock({_LOCK})"
        )

    def _mark(self, connection: Connection, token: str) -> None:
        connection.execute(_commits.insert().values(token=token))
        if self._acknowledged is not None:
            connection.execute(_commits.delete().where(_commits.c.token == self._acknowledged))
        else:
            # Writers that ended left their last marks.
            day_ago = func.now() - timedelta(days=1)
            connection.execute(_commits.delete().where(_commits.c.at < day_ago))

    def _insist(self, attempt: Callable[[], T]) -> T:
        """Try until it succeeds, fails for good, or the server was away for too long."""
        failed_at: float | None = None
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                result = attempt()
            except DBAPIError as error:
                ours, may_pass = self._our_error(error)
                if ours is None:
                    raise
                now = time.monotonic()
                failed_at = failed_at or now
                has_waited = now - failed_at >= self._outage_s
                if isinstance(ours, StoreUnreachableError):  # else Ctrl-C would wait with it
                    has_waited |= has_deferred_signal()
                if not may_pass or has_waited:
                    raise ours from error
            else:
                self._has_answered = True
                return result
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _our_error(self, error: DBAPIError) -> tuple[PlannerError | None, bool]:
        """Give our error, if it is one that can be expected, and whether trying again may help."""
        state = str(getattr(error.orig, "sqlstate", None) or "")
        said = " ".join(str(error.orig).split())
        where = f"database {self.name}"
        if state in _AGAIN:
            return StoreLockedError(f"{where}: {said}: try again"), True
        if state in _LOCKED:
            return StoreLockedError(
                f"{where}: another program has locked it for more than "
                f"{self._lock_timeout_s:g} s ({said}): end that program, then try again"
            ), False
        if state in _CORRUPT:
            return StoreCorruptError(
                f"{where}: {said}: restore a copy, or choose another with --db"
            ), False
        if state.startswith(_GONE) or (not state and isinstance(error, OperationalError)):
            return StoreUnreachableError(f"{where}: {said}: {_way_out(said)}"), self._has_answered
        if state.startswith(_UNWRITABLE):
            return StoreUnwritableError(
                f"{where}: {said}: check the rights of its user and the free space, "
                "or choose another with --db"
            ), False
        if not state and isinstance(error, ProgrammingError):  # libpq knows no such option
            return StoreUrlError(f"{where}: {said}"), False
        return None, False


def _numbered_tables() -> list[Table]:
    return [table for table in metadata.sorted_tables if "id" in table.c]


def _sequence(connection: Connection, table: Table) -> str:
    """Give the name of the sequence that numbers the rows of a table."""
    return str(connection.execute(select(func.pg_get_serial_sequence(table.name, "id"))).scalar())


def _has_mark(connection: Connection, token: str) -> bool:
    found = connection.execute(select(_commits.c.token).where(_commits.c.token == token))
    return found.first() is not None


def parse_address(url: str) -> URL:
    """Read an address.

    Raises:
        StoreUrlError: It holds a password or cannot be read.
    """
    scheme = url.partition("://")[0]
    address: URL | None = None
    with suppress(ArgumentError, ValueError):  # their messages repeat the address
        address = make_url(url)
    # A name with an @ is what stood behind a slash in the user, with a password.
    if address is None or "@" in (address.database or ""):
        raise StoreUrlError(
            f"database {scheme}://...: it cannot be read: use {scheme}://user@host/name"
        )
    options = [name.casefold() for name in address.query]
    if address.password is not None or any(part in name for name in options for part in _SECRETS):
        raise StoreUrlError(
            f"database {scheme}://...: others can see a password that is in an address: leave it "
            "out, and put it into ~/.pgpass, which only you may read, or into a service file"
        )
    return address.set(drivername="postgresql+psycopg")


@lru_cache
def _engine(address: URL) -> Engine:
    """Give the engine of an address, which keeps no connection, but what it asked and compiled."""
    own = {name: value for name, value in _CONNECTION.items() if name not in address.query}
    if "connect_timeout" in address.query or "PGCONNECT_TIMEOUT" in os.environ:
        del own["connect_timeout"]
    try:
        return create_engine(
            address,
            connect_args=own,
            json_deserializer=read_json,
            json_serializer=write_json,
            poolclass=NullPool,
            use_native_hstore=False,
        )
    except ImportError as error:
        raise StoreUrlError(
            f"database {address}: what speaks with PostgreSQL is missing ({error}): "
            f"{install_command('ddlplan[postgres]')}"
        ) from error


def _way_out(said: str) -> str:
    if "password" in said:
        return "put the password into ~/.pgpass, which only you may read, or into a service file"
    if "does not exist" in said:
        return "make it with createuser or createdb, or choose another with --db"
    return "start the server, or choose another with --db"
