"""Trials of similar machines and use cases, from which a new study learns."""

from __future__ import annotations

from sqlalchemy import select

from planner.search.likeness import LEAST_LIKENESS, SimilarTrials, case_likeness, node_likeness
from planner.store.databases.database import Database
from planner.store.databases.tables import studies, trials
from planner.store.machine_store import MachineStore
from planner.store.rows import trial_from_row
from planner.tuning.study import Study

_MOST_STUDIES, _MOST_SIMILAR = 200, 200
"""Studies that are looked at, the latest ones, and trials of those that are alike: what reading
takes stays below a second."""


def find_similar(
    database: Database, machines: MachineStore, study: Study, *, up_to: int
) -> tuple[SimilarTrials, ...]:
    """Give trials of studies of machines and use cases that are alike, the most alike first.

    So many that a search can begin at once, however large the database is. The study's own trials
    are left out, and those numbered above ``up_to``.
    """
    node = machines.latest_probe(study.fingerprint, node=study.node)
    if node is None:
        return ()
    query = select(*studies.c["id", "key", "use_case", "data", "node", "fingerprint"])
    rows = database.fetch(query.order_by(studies.c.id.desc()).limit(_MOST_STUDIES), dict)
    places = {(row["fingerprint"], row["node"]) for row in rows}
    alike = {
        (fingerprint, name): node_likeness(node, other)
        for fingerprint, name in places
        if (other := machines.latest_probe(fingerprint, node=name)) is not None
    }
    ranked = sorted(
        (
            (
                alike.get((row["fingerprint"], row["node"]), 0.0)
                * case_likeness(study.use_case, study.data, row["use_case"], row["data"]),
                row["id"],
            )
            for row in rows
            if row["key"] != study.key
        ),
        reverse=True,
    )
    found: list[SimilarTrials] = []
    for likeness, study_id in ranked:
        left = _MOST_SIMILAR - sum(len(one.results) for one in found)
        if likeness < LEAST_LIKENESS or left <= 0:
            break
        latest = select(trials).where(trials.c.study_id == study_id, trials.c.id <= up_to)
        latest = latest.order_by(trials.c.number.desc()).limit(left)
        results = tuple(t.result for t in database.fetch(latest, trial_from_row))
        found.append(SimilarTrials(study_id=study_id, likeness=likeness, results=results))
    return tuple(found)
