"""Search by name: things whose use case, machine or command has a text in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, Text, cast, literal, or_, select, type_coerce

from planner.records.name_match import NameMatch
from planner.scripts.naming import PREFIX
from planner.store.databases.database import Database
from planner.store.databases.tables import PlainText, jobs, nodes, plans, studies, sweeps, trainings
from probes import codec

_AT_ONCE = 500
"""Trainings that are read at a time: a text may be in the plans of all of them."""


class NameSearch:
    """Finds things of a database by their names; reads no more of them than a line."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, text: str, *, most: int) -> list[NameMatch]:
        """Give things with this text in a name, in any case: the newest of each kind."""
        found: list[NameMatch] = []
        for query in _queries(text):
            found += self._database.fetch(query.limit(most), _match)
        return found + self._find_trainings(text, most)

    def _find_trainings(self, text: str, most: int) -> list[NameMatch]:
        """Give the newest; those of which only the hosts' plans have the text are read in vain."""
        found: list[NameMatch] = []
        query = _trainings(text).limit(_AT_ONCE)
        part = query
        while len(found) < most:
            rows = self._database.fetch(part, lambda row: (row["id"], _match_training(row, text)))
            found += [one for _, one in rows if one is not None]
            if len(rows) < _AT_ONCE:
                break
            part = query.where(trainings.c.id < rows[-1][0])
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
    named = _in_any(text, name, place)
    hosts = type_coerce(cast(trainings.c.hosts, Text), PlainText)
    query = _newest("training", trainings, name, place, at)
    query = query.add_columns(named.label("is_named"), trainings.c.hosts)
    return query.where(or_(named, _in_any(text, hosts)))


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
    return or_(*(column.icontains(text, autoescape=True) for column in columns))


def _match(row: dict[str, Any]) -> NameMatch:
    return codec.convert(row, NameMatch, source="name")


def _match_training(row: dict[str, Any], text: str) -> NameMatch | None:
    """Give a training; ``None`` where only its hosts' plans have the text, as ``cpu``."""
    hosts, is_named = row.pop("hosts"), row.pop("is_named")
    if is_named or any(text.lower() in one["host"].lower() for one in hosts):
        return _match(row)
    return None
