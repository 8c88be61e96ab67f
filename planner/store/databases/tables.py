"""Tables of the database in its present version, with types that PostgreSQL has too.

A change to a table needs a step in `migrations`: databases of users are not made again.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)

_TEXT = Text().with_variant(Text(collation="C"), "postgresql")
"""Text in the order of its bytes, as SQLite has it: a server's own order may skip the marks between
a time's digits."""

_Number = BigInteger().with_variant(Integer, "sqlite")
"""A whole number up to ``2 ** 63 - 1``: in SQLite any has this range, and only one that is called
INTEGER numbers the rows by itself."""


def plain_text(text: str) -> str:
    """Give a text as every database accepts it.

    File names that are not UTF-8 reach Python as lone surrogates, which SQLite's driver cannot
    encode, and PostgreSQL cannot store NUL. Both become visible escapes.
    """
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


class PlainText(TypeDecorator[str]):
    """Text that every database accepts: see `plain_text`."""

    impl = _TEXT
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else plain_text(value)


class UtcTime(TypeDecorator[datetime]):
    """An aware time as ISO 8601 text in UTC, because SQLite has no type with a time zone."""

    impl = _TEXT
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:
        return None if value is None else value.astimezone(UTC).isoformat()

    def process_result_value(self, value: str | None, dialect: Dialect) -> datetime | None:
        return None if value is None else datetime.fromisoformat(value)


metadata = MetaData()

schema = Table(
    "ddlplan_schema",
    metadata,
    Column("version", Integer, nullable=False),
)
"""One row. The name of the table distinguishes our databases from those of other programs."""

nodes = Table(
    "nodes",
    metadata,
    Column("id", _Number, primary_key=True),
    Column("name", PlainText, nullable=False),
    Column("fingerprint", PlainText, nullable=False),
    Column("first_seen", UtcTime, nullable=False),
    Column("last_seen", UtcTime, nullable=False),
    UniqueConstraint("name", "fingerprint"),
)
"""A machine with other hardware in it is another row."""

probes = Table(
    "probes",
    metadata,
    Column("id", _Number, primary_key=True),
    Column("node_id", ForeignKey("nodes.id"), nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("hardware", JSON, nullable=False),
    Index("probes_of_node", "node_id"),
)

studies = Table(
    "studies",
    metadata,
    Column("id", _Number, primary_key=True),
    Column("key", PlainText, nullable=False),
    Column("generation", _Number, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("use_case", PlainText, nullable=False),
    Column("node", PlainText, nullable=False),
    Column("fingerprint", PlainText, nullable=False),
    Column("precision", PlainText, nullable=False),
    Column("software", JSON, nullable=False),
    Column("data", PlainText, nullable=False),
    Column("seed", BigInteger, nullable=False),
    # Trials of finished searches; later ones belong to a search that can be continued.
    Column("finished_trials", _Number, nullable=False),
    Column("facts", JSON(none_as_null=True)),
    UniqueConstraint("key", "generation"),
)

trials = Table(
    "trials",
    metadata,
    Column("id", _Number, primary_key=True),
    Column("study_id", ForeignKey("studies.id"), nullable=False),
    Column("number", _Number, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("role", PlainText, nullable=False),
    Column("outcome", PlainText, nullable=False),
    Column("plan", JSON, nullable=False),
    Column("parameters", JSON, nullable=False),
    Column("measurement", JSON(none_as_null=True)),
    Column("peak_memory_bytes", BigInteger),
    Column("reason", PlainText),
    Column("log_tail", PlainText),
    Column("elapsed_s", Float, nullable=False),
    Column("peak_device_memory_bytes", BigInteger),
    UniqueConstraint("study_id", "number"),
)

plans = Table(
    "plans",
    metadata,
    Column("id", _Number, primary_key=True),
    Column("study_id", ForeignKey("studies.id")),
    Column("created_at", UtcTime, nullable=False),
    Column("use_case", PlainText, nullable=False),
    Column("node", PlainText, nullable=False),
    Column("fingerprint", PlainText, nullable=False),
    Column("plan", JSON, nullable=False),
    Column("throughput", JSON, nullable=False),
    Column("speedup", JSON(none_as_null=True)),
    Column("baseline", JSON(none_as_null=True)),
    Column("peak_memory_bytes", BigInteger),
    Column("software", JSON, nullable=False),
    Column("step_time", JSON(none_as_null=True)),
    Column("gradient_bytes", BigInteger),
    Column("begins_early", Boolean),
    Column("use_case_digest", PlainText),
    Column("comparisons", JSON),
    Column("objective", JSON(none_as_null=True)),
    Column("is_generated", Boolean),
    Column("peak_device_memory_bytes", BigInteger),
    # Users write down the number of a plan, so the number of a removed one is not used again.
    sqlite_autoincrement=True,
)

links = Table(
    "links",
    metadata,
    Column("id", _Number, primary_key=True),
    Column("measured_at", UtcTime, nullable=False),
    Column("hosts", JSON, nullable=False),
    Column("fingerprints", JSON, nullable=False),
    Column("measurement", JSON, nullable=False),
)
"""Measurements of the network between hosts, one row each."""

trainings = Table(
    "trainings",
    metadata,
    Column("id", _Number, primary_key=True),
    Column("started_at", UtcTime, nullable=False),
    Column("use_case", PlainText, nullable=False),
    Column("data", PlainText),
    Column("seed", BigInteger, nullable=False),
    Column("epochs", _Number, nullable=False),
    Column("hosts", JSON, nullable=False),
    Column("expected_samples_per_s", Float),
    Column("machine", PlainText, nullable=False),
    Column("run_directory", PlainText, nullable=False),
    Column("process", JSON(none_as_null=True)),
    Column("heartbeat_at", UtcTime),
    Column("state", PlainText, nullable=False),
    Column("ended_at", UtcTime),
    Column("error", PlainText),
    Column("epochs_done", JSON, nullable=False),
    Column("steps", BigInteger, nullable=False),
    Column("checkpoint", PlainText),
    Column("weights", PlainText),
    Column("is_generated", Boolean),
    Column("use_case_digest", PlainText),
    sqlite_autoincrement=True,
)

usage = Table(
    "usage",
    metadata,
    Column("id", _Number, primary_key=True),
    Column("training_id", ForeignKey("trainings.id"), nullable=False),
    Column("host", PlainText, nullable=False),
    Column("series", JSON, nullable=False),
    UniqueConstraint("training_id", "host"),
)
"""Use of each host over a training, one row a host; the series has a bounded length."""

sweeps = Table(
    "sweeps",
    metadata,
    Column("id", _Number, primary_key=True),
    Column("key", PlainText, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("use_case", PlainText, nullable=False),
    Column("data", PlainText),
    Column("seed", BigInteger, nullable=False),
    Column("epochs", _Number, nullable=False),
    Column("batches", JSON, nullable=False),
    Column("settings", JSON, nullable=False),
    Column("node", PlainText, nullable=False),
    Column("fingerprint", PlainText, nullable=False),
    Column("software", JSON, nullable=False),
    Column("use_case_digest", PlainText, nullable=False),
    Column("train_samples", _Number, nullable=False),
    Column("test_samples", _Number, nullable=False),
    Column("is_generated", Boolean),
    Index("sweeps_of_key", "key"),
    sqlite_autoincrement=True,
)

sweep_points = Table(
    "sweep_points",
    metadata,
    Column("id", _Number, primary_key=True),
    Column("sweep_id", ForeignKey("sweeps.id"), nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("batch", _Number, nullable=False),
    Column("setting", _Number, nullable=False),
    Column("plan", JSON, nullable=False),
    Column("side_by_side", PlainText, nullable=False),
    Column("outcome", PlainText, nullable=False),
    Column("measurement", JSON(none_as_null=True)),
    Column("epochs", JSON, nullable=False),
    Column("peak_memory_bytes", BigInteger),
    Column("start_s", Float),
    Column("elapsed_s", Float, nullable=False),
    Column("reason", PlainText),
    Column("log_tail", PlainText),
    UniqueConstraint("sweep_id", "batch", "setting"),
    sqlite_autoincrement=True,
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", _Number, primary_key=True),
    Column("kind", PlainText, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("machine", PlainText, nullable=False),
    Column("user", PlainText, nullable=False),
    Column("title", PlainText, nullable=False),
    Column("request", JSON, nullable=False),
    Column("is_detached", Boolean, nullable=False),
    Column("folder", PlainText),
    Column("state", PlainText, nullable=False),
    Column("process", JSON(none_as_null=True)),
    Column("heartbeat_at", UtcTime),
    Column("started_at", UtcTime),
    Column("ended_at", UtcTime),
    Column("cancel_requested_at", UtcTime),
    Column("exit_code", _Number),
    Column("error", PlainText),
    Column("study_id", ForeignKey("studies.id")),
    Column("training_id", ForeignKey("trainings.id")),
    # No foreign key: a plan may be removed, and the job that found it stays.
    Column("plan_id", _Number),
    Column("progress", JSON(none_as_null=True)),
    Column("progress_at", UtcTime),
    Column("sweep_id", ForeignKey("sweeps.id")),
    Index("jobs_of_machine", "machine", "state"),
    sqlite_autoincrement=True,
)

events = Table(
    "events",
    metadata,
    Column("id", _Number, primary_key=True),
    Column("created_at", UtcTime, nullable=False),
    Column("topic", PlainText, nullable=False),
    Column("subject_id", _Number, nullable=False),
    sqlite_autoincrement=True,
)
"""Changes, the latest `event_log.MOST_EVENTS`; each is written with what it tells of."""
