"""Database record: what a database is and holds, what is wrong with it, what was copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRecord:
    """One table of a database."""

    name: str
    rows: int

    changed_at: datetime | None
    """Latest time that any of its rows has; ``None`` where it has no rows or no times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseRecord:
    """A database."""

    name: str
    """Path, or address without a password."""

    kind: str
    """``SQLite 3.40.1``, ``PostgreSQL 15.18``."""

    version: int
    """Of its tables."""

    size_bytes: int
    tables: Sequence[TableRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRecord:
    """What a check of a database found."""

    name: str
    rows: int
    """That were read."""

    faults: Sequence[str]
    """A line each; none in a database that is whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedTable:
    """A table that was copied, and read back equal."""

    name: str
    rows: int

    digest: str
    """SHA-256 of its rows, the same in both databases."""
