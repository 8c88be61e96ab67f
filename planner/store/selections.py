"""Selections of rows: those with certain values, the newest, those of a use case; short ones."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, func, literal, select

from planner.store.databases.database import HIGHEST_NUMBER
from planner.store.databases.tables import PlainText, plans

_LONG = ("step_time", "comparisons")


def having(
    query: Select[Any], table: Table, **values: str | int | Collection[str] | None
) -> Select[Any]:
    """Keep the rows that have these values in these columns; ``None`` keeps all of them.

    Of a collection, a row must have one value.
    """
    for name, value in values.items():
        column = table.c[name]
        if isinstance(value, str | int):
            query = query.where(column == value)
        elif value is not None:
            query = query.where(column.in_([str(one) for one in value]))
    return query


def newest(query: Select[Any], table: Table, before: int | None, most: int | None) -> Select[Any]:
    """Order rows by their numbers, the highest first; keep so many of those below a number."""
    most = None if most is None else min(most, HIGHEST_NUMBER)
    query = query.order_by(table.c.id.desc()).limit(most)
    return query if before is None else query.where(table.c.id < before)


def select_brief_plans() -> Select[Any]:
    """Select plans without their step times and comparisons, which are most of what is stored."""
    return select(*(column for column in plans.c if column.name not in _LONG))


def of_equal_use_case(
    query: Select[Any], table: Table, digest: ColumnElement[str], use_case: str | None
) -> Select[Any]:
    """Keep the rows of a use case and, by its digest, of one that is equal and lies elsewhere.

    Without a use case all rows are kept.
    """
    if use_case is None:
        return query
    here = table.c.use_case == use_case
    return query.where(here | digest.in_(select(digest).where(here, digest.is_not(None))))


def is_namesake(table: Table, use_case: str) -> ColumnElement[bool]:
    """Match a use case, and objects of its name in other files and modules."""
    _, colon, name = use_case.rpartition(":")
    same = table.c.use_case == use_case
    if not colon:
        return same
    # Not LIKE: SQLite's takes upper and lower case for equal.
    end = literal(f":{name}", PlainText)
    start = func.length(table.c.use_case) - func.length(end) + 1
    return same | (func.substr(table.c.use_case, start) == end)
