"""Database: transactions on SQLite or PostgreSQL, one way for both.

A transaction is a function of its connection, so that one that failed for no reason of its own can
be run again. It must do nothing but read and write the database.
"""

from __future__ import annotations

import json
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Column, Connection, Engine, RowMapping, Select, Table, func, select

from launch.errors import InvalidPlanError
from planner.errors import StoreCorruptError
from planner.store.databases.tables import metadata, plans
from probes.errors import InvalidDocumentError, InvalidMeasurementError

T = TypeVar("T")

# A Ctrl-C that comes while a connection is closed is logged by SQLAlchemy, with a traceback on
# stderr where a program has no handlers; it is raised as well, and told by who takes it.
logging.getLogger("sqlalchemy").addHandler(logging.NullHandler())

Work = Callable[[Connection], T]

UNREADABLE = (
    AttributeError,
    InvalidDocumentError,
    InvalidMeasurementError,
    InvalidPlanError,
    KeyError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What decoding a damaged row raises."""

HIGHEST_NUMBER = 2**63 - 1
"""Of a row: a query with a higher one in it is refused by the driver."""

write_json = partial(json.dumps, allow_nan=False, separators=(",", ":"))
"""Writes documents. NaN is no JSON: PostgreSQL refuses it, and so do we on SQLite."""


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number[:60]}: expected a finite number")
    return value


read_json = partial(json.loads, parse_constant=_finite, parse_float=_finite)
"""Reads documents; what is shown of them must be JSON again."""


def plain_row(row: RowMapping) -> dict[str, Any]:
    """Give a row by the names of its columns, which SQLAlchemy has as a kind of text of its own."""
    return {str(name): row[name] for name in row}


def _table_of(query: Select[Any]) -> Table | None:
    """Find the table whose rows a query gives, perhaps with more columns."""
    first = next(iter(query.columns_clause_froms), None)
    return first if isinstance(first, Table) else None


def insert(connection: Connection, table: Table, values: Mapping[str, Any]) -> int:
    """Insert a row and give its number."""
    created = connection.execute(table.insert().values(**values)).inserted_primary_key
    assert created is not None  # an insert of one row always gives it
    return int(created[0])


class Database(ABC):
    """An open database; the driver's errors become subclasses of `StoreError`.

    Attributes:
        name: What messages call it: a path, or an address without a password.
    """

    def __init__(self, name: str, engine: Engine) -> None:
        self.name = name
        self._engine = engine

    def read(self, work: Work[T]) -> T:
        """Run a function that sees one state of the database, and give what it gives.

        Raises:
            StoreCorruptError: What it reads cannot be decoded.
        """
        with self.decoding():
            return self._read(work)

    @contextmanager
    def decoding(self, table: Table | None = None, number: int | None = None) -> Iterator[None]:
        """Turn what decoding a damaged row raises into `StoreCorruptError`.

        Args:
            table: Of the row, where it is known.
            number: Of the row in its table, where it is known.
        """
        try:
            yield
        except UNREADABLE as error:
            what, remedy = f"({error}), ddlplan db check says which", "restore a copy"
            if table is not None and number is not None:
                what = f"({table.name} {number}: {error})"
            if table is plans and number is not None:
                remedy = f"remove the plan with ddlplan plans rm {number}, {remedy}"
            raise StoreCorruptError(
                f"database {self.name}: a row cannot be read {what}: {remedy}, or choose another "
                "with --db"
            ) from error

    @abstractmethod
    def _read(self, work: Work[T]) -> T:
        """Run a function in a transaction that reads."""

    @abstractmethod
    def write(self, work: Work[T]) -> T:
        """Run a function whose writes are all committed when this returns, or none.

        No other writer is at work meanwhile: what it has read holds until its writes are
        committed.
        """

    @abstractmethod
    def kind(self, connection: Connection) -> str:
        """Name the database system, with its version."""

    @abstractmethod
    def size_bytes(self, connection: Connection) -> int:
        """Give how much of a disk it takes."""

    @abstractmethod
    def find_damage(self, connection: Connection) -> Iterator[str]:
        """Find what the database system itself says is damaged, a line each."""

    @abstractmethod
    def last_numbers(self, connection: Connection) -> dict[str, int]:
        """Give the highest number that a row of each table ever had, as far as that is kept."""

    @abstractmethod
    def set_last_numbers(self, connection: Connection, numbers: Mapping[str, int]) -> None:
        """Let new rows of each table have higher numbers than these, and than those it has."""

    def create_tables(self, connection: Connection) -> None:
        """Create the tables of today."""
        metadata.create_all(connection)

    def fetch(self, query: Select[Any], decode: Callable[[dict[str, Any]], T]) -> list[T]:
        """Read rows as values.

        Raises:
            StoreCorruptError: A row cannot be decoded.
        """
        return self.read(self._fetching(query, decode))

    def _fetching(self, query: Select[Any], decode: Callable[[dict[str, Any]], T]) -> Work[list[T]]:
        table = _table_of(query)

        def work(connection: Connection) -> list[T]:
            found = []
            for row in map(plain_row, connection.execute(query).mappings()):
                with self.decoding(table, row.get("id")):
                    found.append(decode(row))
            return found

        return work

    def find(
        self,
        query: Select[Any],
        number: Column[int],
        wanted: int,
        decode: Callable[[dict[str, Any]], T],
    ) -> T | None:
        """Read the row that has a number in a column; ``None`` where none has it.

        Raises:
            StoreCorruptError: The row cannot be decoded.
        """
        if not 0 < wanted <= HIGHEST_NUMBER:
            return None
        with self.decoding(_table_of(query), wanted):
            found = self._read(self._fetching(query.where(number == wanted), decode))
        return found[0] if found else None

    def newest_number(self, table: Table) -> int:
        """Give the highest number of a row; 0 where there is none."""
        query = select(func.max(table.c.id).label("id"))
        (found,) = self.fetch(query, lambda row: int(row["id"] or 0))
        return found

    def close(self) -> None:
        self._engine.dispose()
