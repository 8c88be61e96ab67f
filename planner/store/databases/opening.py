"""Opening of a database by ``--db``: a file of SQLite, or an address of PostgreSQL."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from planner.errors import NoDatabaseError, StoreError, StoreLockedError
from planner.store.databases.database import Database
from planner.store.databases.location import (
    check_folder,
    check_writable,
    create_private,
    database_path,
    exists_as_file,
    find_above,
    find_network_file_system,
    is_postgres,
    remove_if_empty,
)
from planner.store.databases.migrations import bring_up_to_date
from planner.store.databases.sqlite import SqliteDatabase

if TYPE_CHECKING:
    from planner.store.databases.postgres import PostgresDatabase

LOCK_TIMEOUT_S = 60.0
"""Wait for other writers: theirs take milliseconds, so only a stuck one takes this long."""

_OUTAGE_FACTOR = 5.0
"""Times as long is waited for a server that does not answer any more: starting a machine again
takes minutes."""


def open_database(
    url: str,
    *,
    create: bool,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
    outage_s: float | None = None,
) -> Database:
    """Open a database with the tables of today; see `Store.open`."""
    if is_postgres(url):
        if outage_s is None:
            outage_s = _OUTAGE_FACTOR * lock_timeout_s
        server = _server(url, outage_s, lock_timeout_s=lock_timeout_s)
        bring_up_to_date(server, create=create)
        return server
    path = database_path(url)
    made = False
    if not exists_as_file(path):
        if not create:
            check_folder(path)  # where that is missing too, the name is wrong
            raise _make_missing_error(path)
        made = create_private(path)
    database = SqliteDatabase(path, lock_timeout_s=lock_timeout_s)
    try:
        bring_up_to_date(database, create=create)
    except StoreError as error:
        # The process that holds the lock uses the file.
        if made and not isinstance(error, StoreLockedError):
            remove_if_empty(path)
        raise
    return database


@contextlib.contextmanager
def opened_to_fill(url: str) -> Iterator[Database]:
    """Open a database without its tables, which are made together with what is put into them.

    Raises:
        StoreUrlError: ``url`` names no database.
        StoreError: It cannot be created.
    """
    if is_postgres(url):
        yield _server(url, 0.0)
        return
    path = database_path(url)
    made = not exists_as_file(path) and create_private(path)
    try:
        yield SqliteDatabase(path, lock_timeout_s=LOCK_TIMEOUT_S)
    finally:
        if made:
            remove_if_empty(path)


def check_location(url: str) -> None:
    """Check that a database can be opened to write, as far as possible without creating anything.

    Raises:
        StoreUrlError: ``url`` names no database.
        StoreError: The database cannot be used or created.
    """
    if is_postgres(url):
        server = _server(url, 0.0)
        with contextlib.suppress(NoDatabaseError):
            bring_up_to_date(server, create=False)
        server.check_writable()
        return
    with contextlib.suppress(NoDatabaseError):
        open_database(url, create=False).close()
    check_writable(database_path(url))


def find_missing_file(url: str) -> str | None:
    """Give the whole path of a database file that is not there yet; ``None`` for any other.

    Raises:
        StoreUrlError: ``url`` names no database.
    """
    if is_postgres(url) or exists_as_file(path := database_path(url)):
        return None
    return str(path.absolute())


def find_hazard(url: str) -> str | None:
    """Warn of a database file on a file system where other machines may write to it too.

    Raises:
        StoreUrlError: ``url`` names no database.
    """
    if is_postgres(url):
        from planner.store.databases.postgres import parse_address  # as `_server` does

        parse_address(url)
        return None
    path = database_path(url)
    if (kind := find_network_file_system(path)) is None:
        return None
    return (
        f"database {path} is on a network file system ({kind}), where SQLite's locks may fail "
        "and two programs that write at once may damage it: name a file on a local disk with "
        "--db, or use PostgreSQL"
    )


def _make_missing_error(path: Path) -> NoDatabaseError:
    """Make the error for a file that is not there, which names one of a folder above."""
    found = find_above(path)
    above = None if found is None else shlex.join(["--db", str(found)])
    other = "--db names another" if above is None else f"{above} names that of a folder above"
    return NoDatabaseError(
        f"there is no database {path}: ddlplan tune makes one, {other}", above=above
    )


def _server(
    url: str, outage_s: float, *, lock_timeout_s: float = LOCK_TIMEOUT_S
) -> PostgresDatabase:
    from planner.store.databases.postgres import PostgresDatabase  # its dialect is not for files

    return PostgresDatabase(url, lock_timeout_s=lock_timeout_s, outage_s=outage_s)
