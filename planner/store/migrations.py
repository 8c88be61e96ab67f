"""Migrations of a database from older versions to the present one.

A new database is made from `tables` at once. An older one gets the missing steps, in order, in one
transaction with the change of its version: a process that is killed meanwhile changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection, inspect, select, text

from planner.errors import NoDatabaseError, StoreCorruptError, StoreNewerError
from planner.store.database import Database
from planner.store.tables import metadata, schema


def _add_clusters(connection: Connection) -> None:
    """Add step times with other batches to plans, and measured links: version 2."""
    for statement in (
        "ALTER TABLE plans ADD COLUMN step_time JSON",
        "ALTER TABLE plans ADD COLUMN gradient_bytes BIGINT",
        "CREATE TABLE links (id INTEGER NOT NULL, measured_at TEXT NOT NULL, hosts JSON NOT NULL, "
        "fingerprints JSON NOT NULL, measurement JSON NOT NULL, PRIMARY KEY (id))",
    ):
        connection.execute(text(statement))


def _add_early_steps(connection: Connection) -> None:
    """Add to plans whether steps begin before the last gradients are summed: version 3."""
    connection.execute(text("ALTER TABLE plans ADD COLUMN begins_early BOOLEAN"))


def _add_facts(connection: Connection) -> None:
    """Add to studies the facts of what is trained: version 4."""
    connection.execute(text("ALTER TABLE studies ADD COLUMN facts JSON"))


def _add_use_case_digests(connection: Connection) -> None:
    """Add to plans what their use case is, wherever it lies: version 5.

    The studies of older plans have it in other words, which none of today's is equal to.
    """
    connection.execute(text("ALTER TABLE plans ADD COLUMN use_case_digest TEXT"))


def _add_comparisons(connection: Connection) -> None:
    """Add to plans what they were raced against: version 6."""
    connection.execute(text("ALTER TABLE plans ADD COLUMN comparisons JSON"))


STEPS: tuple[Callable[[Connection], None], ...] = (
    _add_clusters,
    _add_early_steps,
    _add_facts,
    _add_use_case_digests,
    _add_comparisons,
)
"""Steps to the next version, the first from version 1 to 2. A step must not use `tables`, which is
always the newest version."""


def bring_up_to_date(
    database: Database,
    *,
    create: bool,
    steps: Sequence[Callable[[Connection], None]] = STEPS,
) -> None:
    """Create the tables, or migrate them to the present version.

    Args:
        database: An open database, perhaps without any table.
        create: Whether to create the tables where there are none.
        steps: Migrations; the n-th leads to version n + 1.

    Raises:
        NoDatabaseError: There are no tables, and ``create`` is false.
        StoreCorruptError: These are tables of another program.
        StoreNewerError: A newer release made the database.
    """
    newest = len(steps) + 1
    with database.read() as connection:
        found = _read_version(connection, database)
    _refuse_newer(found, newest, database)
    if found == newest:
        return
    if found is None and not create:
        raise NoDatabaseError(f"no plans in {database.path}: run ddlplan tune first")
    with database.write() as connection:
        found = _read_version(connection, database)  # another process may have been faster
        _refuse_newer(found, newest, database)
        if found is None:
            metadata.create_all(connection)
            connection.execute(schema.insert().values(version=newest))
        else:
            for step in steps[found - 1 :]:
                step(connection)
            connection.execute(schema.update().values(version=newest))


def _refuse_newer(found: int | None, newest: int, database: Database) -> None:
    if found is not None and found > newest:
        raise StoreNewerError(
            f"database {database.path}: it is of a newer version (version={found}, known up to "
            f"{newest}): update ddlplan, or choose another file with --db"
        )


def _read_version(connection: Connection, database: Database) -> int | None:
    """Read the version of the tables; ``None`` where there are no tables."""
    names = inspect(connection).get_table_names()
    if not names:
        return None
    if schema.name not in names:
        raise StoreCorruptError(
            f"database {database.path}: it belongs to another program: "
            "choose another file with --db"
        )
    versions = connection.execute(select(schema.c.version)).scalars().all()
    if len(versions) != 1 or not isinstance(versions[0], int) or versions[0] < 1:
        raise StoreCorruptError(
            f"database {database.path}: its version cannot be read ({list(versions)}): "
            "restore a copy, or choose another file with --db"
        )
    return versions[0]
