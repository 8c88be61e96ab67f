"""Databases as text and as JSON: what they hold, what is wrong with them, what was copied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.plans.stored_plan import iso_utc
from planner.quantities import format_bytes
from planner.records.database_record import (
    CheckRecord,
    CopiedTable,
    DatabaseRecord,
    TableRecord,
)
from planner.report.table import Column, Row

TABLE_COLUMNS = (
    Column(key="table", title="TABLE"),
    Column(key="rows", title="ROWS", right=True),
    Column(key="changed", title="LAST CHANGE"),
)
COPY_COLUMNS = (
    Column(key="table", title="TABLE"),
    Column(key="rows", title="ROWS", right=True),
    Column(key="digest", title="SHA-256 IN BOTH"),
)


def database_line(record: DatabaseRecord) -> str:
    """Say in a line what a database is."""
    size = format_bytes(record.size_bytes)
    return f"{record.name}: {record.kind}, version {record.version} of the tables, {size}"


def table_rows(record: DatabaseRecord) -> list[Row]:
    """Give the tables of a database, a line each."""
    return [
        {
            "table": table.name,
            "rows": str(table.rows),
            "changed": "" if table.changed_at is None else iso_utc(table.changed_at),
        }
        for table in record.tables
    ]


def database_json(record: DatabaseRecord) -> dict[str, Any]:
    """Give what a database is and holds as plain values for JSON."""
    return {
        "database": record.name,
        "kind": record.kind,
        "version": record.version,
        "size_bytes": record.size_bytes,
        "tables": [_table_json(table) for table in record.tables],
    }


def _table_json(table: TableRecord) -> dict[str, Any]:
    changed = None if table.changed_at is None else iso_utc(table.changed_at)
    return {"name": table.name, "rows": table.rows, "changed_at": changed}


def check_json(record: CheckRecord) -> dict[str, Any]:
    """Give what a check found as plain values for JSON."""
    return {"database": record.name, "rows": record.rows, "faults": list(record.faults)}


def copied_rows(copied: Sequence[CopiedTable]) -> list[Row]:
    """Give the tables of a copy, a line each."""
    return [
        {"table": table.name, "rows": str(table.rows), "digest": table.digest[:16]}
        for table in copied
    ]


def copied_json(source: str, target: str, copied: Sequence[CopiedTable]) -> dict[str, Any]:
    """Give what was copied as plain values for JSON."""
    tables = [{"name": t.name, "rows": t.rows, "sha256": t.digest} for t in copied]
    return {"from": source, "to": target, "tables": tables}
