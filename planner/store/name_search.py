"""Search by name: things whose use case, machine or command has a text in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    Table,
    Text,
    and_,
    cast,
    literal,
    or_,
    select,
    type_coerce,
)

from planner.records.name_match import NameMatch
from planner.scripts.naming import PREFIX
from planner.store.databases.database import Database
from planner.store.databases.tables import (
    PlainText,
    jobs,
    nodes,
    plain_text,
    plans,
    studies,
    sweeps,
    trainings,
)
from probes import codec

_AT_ONCE = 500
"""Things that are read at a time where the database names some in vain."""

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
"""Letters whose case SQLite does not know, nor PostgreSQL in columns in the order of bytes."""


class NameSearch:
    """Finds things of a database by their names; reads no more of them than a line."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, text: str, *, most: int) -> list[NameMatch]:
        """Give things with this text in a name, in any case: the newest of each kind."""
        text = plain_text(text)
        at_once = most if text.isascii() else _AT_ONCE
        found: list[NameMatch] = []
        for query in _queries(text):
            found += self._find(query, text, most, at_once)
        return found + self._find(_trainings(text), text, most, _AT_ONCE)

    def _find(self, query: Select[Any], text: str, most: int, at_once: int) -> list[NameMatch]:
        """Give the newest; those of which no name has the text are read in vain."""
        found: list[NameMatch] = []
        query = query.limit(at_once)
        part = query
        while len(found) < most:
            rows = self._database.fetch(part, lambda row: (row["id"], _match(row, text)))
            found += [one for _, one in rows if one is not None]
            if len(rows) < at_once:
                break
            part = query.where(query.selected_columns["id"] < rows[-1][0])
        return found[:most]

    def use_cases(self) -> list[str]:
        """Give the use cases that plans are stored of; scripts are none."""
        query = select(plans.c.use_case).where(~plans.c.use_case.startswith(PREFIX))
        query = query.distinct().order_by(plans.c.use_case)
        return self._database.fetch(query, lambda row: str(row["use_case"]))


def _queries(text: str) -> Iterator[Select[Any]]:
    for kind, table, name, place, at in (
        ("machine", nodes, nodes.c.name, nodes.c.name, nodes.c.last_seen),
        ("study", studies, studies.c.use_case, studies.c.node, studies.c.created_at),
        ("plan", plans, plans.c.use_case, plans.c.node, plans.c.created_at),
        ("sweep", sweeps, sweeps.c.use_case, sweeps.c.node, sweeps.c.created_at),
        ("job", jobs, jobs.c.title, jobs.c.machine, jobs.c.created_at),
    ):
        yield _newest(kind, table, name, place, at).where(_in_any(text, name, place))


def _trainings(text: str) -> Select[Any]:
    """Select trainings with the text in a name, or anywhere in the document of their hosts."""
    name, place, at = trainings.c.use_case, trainings.c.machine, trainings.c.started_at
    hosts = type_coerce(cast(trainings.c.hosts, Text), PlainText)
    query = _newest("training", trainings, name, place, at).add_columns(trainings.c.hosts)
    return query.where(_in_any(text, name, place, hosts))


def _newest(
    kind: str,
    table: Table,
    name: ColumnElement[str],
    place: ColumnElement[str],
    at: ColumnElement[Any],
) -> Select[Any]:
    return select(
        literal(kind).label("kind"),
        table.c.id,
        name.label("name"),
        place.label("place"),
        at.label("at"),
    ).order_by(table.c.id.desc())


def _in_any(text: str, *columns: ColumnElement[str]) -> ColumnElement[bool]:
    """Tell whether a column has the text in any case, whatever its letters beyond ASCII are."""
    parts = _NOT_ASCII.split(text)
    return or_(
        *(and_(*(column.icontains(part, autoescape=True) for part in parts)) for column in columns)
    )


def _match(row: dict[str, Any], text: str) -> NameMatch | None:
    """Give a thing; ``None`` where no name has the text, but a plan of its hosts, as ``cpu``."""
    names = [row["name"], row["place"], *(one["host"] for one in row.pop("hosts", ()))]
    if any(text.casefold() in plain_text(name).casefold() for name in names):
        return codec.convert(row, NameMatch, source="name")
    return None
