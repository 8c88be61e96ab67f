"""Migrations of a database from older versions to the present one.

A new database is made from `tables` at once. An older one gets the missing steps, in order, in one
transaction with the change of its version: a process that is killed meanwhile changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sqlalchemy import Connection, inspect, select, text

from planner.errors import NoDatabaseError, StoreCorruptError, StoreNewerError
from planner.store.databases.database import Database
from planner.store.databases.tables import metadata, schema

Step = Callable[[Connection], None]

_WORDS = {
    "sqlite": {
        "id": "INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT",
        "number": "INTEGER",
        "text": "TEXT",
    },
    "postgresql": {
        "id": "BIGSERIAL NOT NULL PRIMARY KEY",
        "number": "BIGINT",
        "text": 'TEXT COLLATE "C"',
    },
}
"""In which the systems differ. PostgreSQL has version 7 and later ones: steps up to that one are in
SQLite's words."""


def _step(*statements: str) -> Step:
    """Make a step of statements, in which braces stand for words of the database's system."""

    def run(connection: Connection) -> None:
        for statement in statements:
            connection.execute(text(statement.format_map(_WORDS[connection.dialect.name])))

    return run


STEPS: tuple[Step, ...] = (
    # Version 2: step times of plans with other batches, and measured links.
    _step(
        "ALTER TABLE plans ADD COLUMN step_time JSON",
        "ALTER TABLE plans ADD COLUMN gradient_bytes BIGINT",
        "CREATE TABLE links (id INTEGER NOT NULL, measured_at TEXT NOT NULL, hosts JSON NOT NULL, "
        "fingerprints JSON NOT NULL, measurement JSON NOT NULL, PRIMARY KEY (id))",
    ),
    # Version 3: whether steps of a plan begin before the last gradients are summed.
    _step("ALTER TABLE plans ADD COLUMN begins_early BOOLEAN"),
    # Version 4: the facts of what a study trains.
    _step("ALTER TABLE studies ADD COLUMN facts JSON"),
    # Version 5: what the use case of a plan is, wherever it lies. Studies of older plans have it in
    # other words, which none of today's is equal to.
    _step("ALTER TABLE plans ADD COLUMN use_case_digest TEXT"),
    # Version 6: what plans were raced against.
    _step("ALTER TABLE plans ADD COLUMN comparisons JSON"),
    # Version 7: jobs, trainings with their use of the machine, and the log of changes.
    _step(
        """CREATE TABLE trainings (
            id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
            started_at TEXT NOT NULL, use_case TEXT NOT NULL, data TEXT, seed BIGINT NOT NULL,
            epochs INTEGER NOT NULL, hosts JSON NOT NULL, expected_samples_per_s FLOAT,
            machine TEXT NOT NULL, run_directory TEXT NOT NULL, process JSON, heartbeat_at TEXT,
            state TEXT NOT NULL, ended_at TEXT, error TEXT, epochs_done JSON NOT NULL,
            steps BIGINT NOT NULL, checkpoint TEXT, weights TEXT
        )""",
        """CREATE TABLE usage (
            id INTEGER NOT NULL PRIMARY KEY,
            training_id INTEGER NOT NULL REFERENCES trainings (id), host TEXT NOT NULL,
            series JSON NOT NULL, UNIQUE (training_id, host)
        )""",
        """CREATE TABLE jobs (
            id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
            kind TEXT NOT NULL, created_at TEXT NOT NULL, machine TEXT NOT NULL, user TEXT NOT NULL,
            title TEXT NOT NULL, request JSON NOT NULL, is_detached BOOLEAN NOT NULL, folder TEXT,
            state TEXT NOT NULL, process JSON, heartbeat_at TEXT, started_at TEXT, ended_at TEXT,
            cancel_requested_at TEXT, exit_code INTEGER, error TEXT,
            study_id INTEGER REFERENCES studies (id),
            training_id INTEGER REFERENCES trainings (id), plan_id INTEGER,
            progress JSON, progress_at TEXT
        )""",
        "CREATE INDEX jobs_of_machine ON jobs (machine, state)",
        """CREATE TABLE events (
            id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
            created_at TEXT NOT NULL, topic TEXT NOT NULL, subject_id INTEGER NOT NULL
        )""",
    ),
    # Version 8: sweeps with their points, and which one a job made.
    _step(
        """CREATE TABLE sweeps (
            id {id}, key {text} NOT NULL, created_at {text} NOT NULL, use_case {text} NOT NULL,
            data {text}, seed BIGINT NOT NULL, epochs {number} NOT NULL, batches JSON NOT NULL,
            settings JSON NOT NULL, node {text} NOT NULL, fingerprint {text} NOT NULL,
            software JSON NOT NULL, use_case_digest {text} NOT NULL,
            train_samples {number} NOT NULL, test_samples {number} NOT NULL, is_generated BOOLEAN
        )""",
        "CREATE INDEX sweeps_of_key ON sweeps (key)",
        """CREATE TABLE sweep_points (
            id {id}, sweep_id {number} NOT NULL REFERENCES sweeps (id), created_at {text} NOT NULL,
            batch {number} NOT NULL, setting {number} NOT NULL, plan JSON NOT NULL,
            side_by_side {text} NOT NULL, outcome {text} NOT NULL, measurement JSON,
            epochs JSON NOT NULL, peak_memory_bytes BIGINT, start_s FLOAT, elapsed_s FLOAT NOT NULL,
            reason {text}, log_tail {text}, UNIQUE (sweep_id, batch, setting)
        )""",
        "ALTER TABLE jobs ADD COLUMN sweep_id {number} REFERENCES sweeps (id)",
    ),
    # Version 9: what plans were chosen for.
    _step("ALTER TABLE plans ADD COLUMN objective JSON"),
    # Version 10: whether samples of plans and trainings were made up.
    _step(
        "ALTER TABLE plans ADD COLUMN is_generated BOOLEAN",
        "ALTER TABLE trainings ADD COLUMN is_generated BOOLEAN",
    ),
    # Version 11: what trials and plans held of a GPU's memory.
    _step(
        "ALTER TABLE trials ADD COLUMN peak_device_memory_bytes BIGINT",
        "ALTER TABLE plans ADD COLUMN peak_device_memory_bytes BIGINT",
    ),
    # Version 12: what the use case of a training was, wherever it lay.
    _step("ALTER TABLE trainings ADD COLUMN use_case_digest {text}"),
)
"""Steps to the next version, the first from version 1 to 2. A step must not use `tables`, which is
always the newest version."""


def bring_up_to_date(database: Database, *, create: bool, steps: Sequence[Step] = STEPS) -> None:
    """Create the tables where that is allowed, or migrate them to the present version.

    The n-th step leads to version n + 1.

    Raises:
        NoDatabaseError: There are no tables, and ``create`` is false.
        StoreCorruptError: These are tables of another program.
        StoreNewerError: A newer release made the database.
    """
    newest = len(steps) + 1
    found = database.read(partial(read_version, database=database))
    _refuse_newer(found, newest, database)
    if found == newest:
        return
    if found is None and not create:
        raise NoDatabaseError(f"no plans in {database.name}: run ddlplan tune first")

    def work(connection: Connection) -> None:
        found = read_version(connection, database)  # another process may have been faster
        _refuse_newer(found, newest, database)
        if found is None:
            database.create_tables(connection)
            connection.execute(schema.insert().values(version=newest))
        else:
            for step in steps[found - 1 :]:
                step(connection)
            connection.execute(schema.update().values(version=newest))

    database.write(work)


def _refuse_newer(found: int | None, newest: int, database: Database) -> None:
    if found is not None and found > newest:
        raise StoreNewerError(
            f"database {database.name}: it is of a newer version (version={found}, known up to "
            f"{newest}): update ddlplan, or choose another with --db"
        )


def _refuse_code(connection: Connection, database: Database) -> None:
    """Refuse what a file may bring along that SQLite would execute as it is read or written.

    A trigger could change which command a job is stored with; a view in place of a table of ours
    could read for ever.
    """
    found = connection.execute(text("SELECT type, name FROM sqlite_master WHERE type <> 'index'"))
    for kind, name in found:
        if kind == "trigger" or (kind == "view" and name.lower() in metadata.tables):
            raise StoreCorruptError(
                f"database {database.name}: it has the {kind} {name!a}, which no ddlplan "
                "makes: remove it, restore a copy, or choose another with --db"
            )


def read_version(connection: Connection, database: Database) -> int | None:
    """Read the version of the tables; ``None`` where there are no tables."""
    names = inspect(connection).get_table_names()
    if names and schema.name not in names:
        raise StoreCorruptError(
            f"database {database.name}: it belongs to another program: choose another with --db"
        )
    if connection.dialect.name == "sqlite":
        _refuse_code(connection, database)
    if not names:
        return None
    versions = connection.execute(select(schema.c.version)).scalars().all()
    if len(versions) != 1 or not isinstance(versions[0], int) or versions[0] < 1:
        raise StoreCorruptError(
            f"database {database.name}: its version cannot be read ({list(versions)}): "
            "restore a copy, or choose another with --db"
        )
    return versions[0]
