"""The commands ``ddlplan db info``, ``check`` and ``copy``."""

from __future__ import annotations

from planner.errors import StoreCorruptError
from planner.quantities import format_count
from planner.report.databases import (
    COPY_COLUMNS,
    TABLE_COLUMNS,
    check_json,
    copied_json,
    copied_rows,
    database_json,
    database_line,
    table_rows,
)
from planner.report.output import Output
from planner.store.inspection import check_database, inspect_database
from planner.store.transfer import copy_database


def show_info(db: str, out: Output) -> None:
    """Say what a database is and holds."""
    record = inspect_database(db)
    out.write_line(database_line(record))
    out.write_table(table_rows(record), TABLE_COLUMNS)
    out.finish(database_json(record))


def check(db: str, out: Output) -> None:
    """Read everything in a database, and say what is wrong.

    Raises:
        StoreCorruptError: Something is.
    """
    record = check_database(db)
    out.set_partial_data(check_json(record))
    for fault in record.faults:
        out.write_line(fault)
    if record.faults:
        count = format_count(len(record.faults), "fault")
        raise StoreCorruptError(
            f"database {record.name}: {count}: restore a copy, or choose another with --db"
        )
    out.write_line(f"{record.name}: {format_count(record.rows, 'row')}, all of them whole")
    out.finish(check_json(record))


def copy(source: str, target: str, out: Output) -> None:
    """Copy everything in a database to another one, and say what."""
    copied = copy_database(source, target)
    out.write_table(copied_rows(copied), COPY_COLUMNS)
    out.note(f"{target} holds what {source} does; name it with --db or DDLPLAN_DB")
    out.finish(copied_json(source, target, copied))
