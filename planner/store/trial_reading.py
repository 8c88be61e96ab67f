"""Trials of several studies, read together with what their studies say of them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Select, select

from planner.store.databases.database import Database, plain_row
from planner.store.databases.tables import studies, trials
from planner.store.rows import trial_from_row
from planner.tuning.study import StoredTrial


def read_with_studies(database: Database, query: Select[Any]) -> list[StoredTrial]:
    """Read rows of ``trials`` with the use case of each, and whether its samples are made up.

    The facts of a study are longer than its trials, which share them: they are read once.

    Raises:
        StoreCorruptError: A row cannot be decoded.
    """
    wanted = query.with_only_columns(trials.c.study_id)
    of_them = select(studies.c.id, studies.c.use_case, studies.c.facts)

    def work(connection: Connection) -> list[StoredTrial]:
        said = {
            row.id: {
                "use_case": row.use_case,
                "is_generated": (
                    row.facts.get("is_generated") if isinstance(row.facts, dict) else None
                ),
            }
            for row in connection.execute(of_them.where(studies.c.id.in_(wanted)))
        }
        found = []
        for row in map(plain_row, connection.execute(query).mappings()):
            with database.decoding(trials, row["id"]):
                found.append(trial_from_row(row | said[row["study_id"]]))
        return found

    return database.read(work)
