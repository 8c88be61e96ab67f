"""Search by name: things whose use case, machine or command has a text in it."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import ColumnElement, Select, Text, cast, literal, or_, select, type_coerce

from planner.records.name_match import NameMatch
from planner.scripts.naming import PREFIX
from planner.store.databases.database import Database
from planner.store.databases.tables import PlainText, jobs, nodes, plans, studies, sweeps, trainings
from probes import codec


class NameSearch:
    """Finds things of a database by their names; reads no more of them than a line."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, text: str, *, most: int) -> list[NameMatch]:
        """Give things with this text in a name, in any case: the newest of each kind."""
        found: list[NameMatch] = []
        for query in _queries(text):
            found += self._database.fetch(
                query.limit(most), lambda row: codec.convert(row, NameMatch, source="name")
            )
        return found

    def use_cases(self) -> list[str]:
        """Give the use cases that plans are stored of; scripts are none."""
        query = select(plans.c.use_case).where(~plans.c.use_case.startswith(PREFIX))
        query = query.distinct().order_by(plans.c.use_case)
        return self._database.fetch(query, lambda row: str(row["use_case"]))


def _queries(text: str) -> Iterator[Select[tuple[object, ...]]]:
    for kind, table, name, place, at in (
        ("machine", nodes, nodes.c.name, nodes.c.name, nodes.c.last_seen),
        ("study", studies, studies.c.use_case, studies.c.node, studies.c.created_at),
        ("plan", plans, plans.c.use_case, plans.c.node, plans.c.created_at),
        ("training", trainings, trainings.c.use_case, trainings.c.machine, trainings.c.started_at),
        ("sweep", sweeps, sweeps.c.use_case, sweeps.c.node, sweeps.c.created_at),
        ("job", jobs, jobs.c.title, jobs.c.machine, jobs.c.created_at),
    ):
        names: list[ColumnElement[str]] = [name, place]
        if table is trainings:  # its hosts are a document
            names.append(type_coerce(cast(table.c.hosts, Text), PlainText))
        matches = or_(*(column.icontains(text, autoescape=True) for column in names))
        yield (
            select(
                literal(kind).label("kind"),
                table.c.id,
                name.label("name"),
                place.label("place"),
                at.label("at"),
            )
            .where(matches)
            .order_by(table.c.id.desc())
        )
