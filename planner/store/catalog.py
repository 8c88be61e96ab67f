"""Catalog: machines, studies, plans and trials of a database, for those who look around."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from sqlalchemy import distinct, func, select

from launch.case_facts import CaseFacts
from planner.errors import NoPlanError
from planner.plans.stored_plan import StoredPlan
from planner.records.machine_record import MachineRecord
from planner.records.study_record import FailureCount, StudyRecord
from planner.scripts.naming import PREFIX
from planner.store.databases.database import Database
from planner.store.databases.tables import nodes, plans, probes, studies, trials
from planner.store.rows import find_document, plan_from_row
from planner.store.selections import having, newest, select_brief_plans
from planner.store.trial_reading import read_with_studies
from planner.trials.result import Outcome
from planner.tuning.study import StoredTrial
from probes import codec
from probes.hardware import Hardware


class Catalog:
    """Reads what a database has."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def machines(self) -> list[MachineRecord]:
        """Give every machine with its last probe, by name, the latest of a name first."""
        last = select(func.max(probes.c.id).label("id")).group_by(probes.c.node_id).subquery()
        latest = select(probes).join(last, last.c.id == probes.c.id).subquery()
        query = (
            select(nodes, latest.c.hardware, latest.c.created_at.label("probed_at"))
            .outerjoin(latest, latest.c.node_id == nodes.c.id)
            .order_by(nodes.c.name, nodes.c.last_seen.desc(), nodes.c.id.desc())
        )
        rows = self._database.fetch(query, dict)
        latest_ids = {row["name"]: row["id"] for row in reversed(rows)}

        def decode(row: Mapping[str, Any]) -> MachineRecord:
            with self._database.decoding(nodes, row["id"]):
                hardware = find_document(row["hardware"], Hardware)
                is_current = row["id"] == latest_ids[row["name"]]
                values = {**row, "hardware": hardware and row["hardware"], "is_current": is_current}
                return codec.convert(values, MachineRecord, source="machine")

        return [decode(row) for row in rows]

    def fingerprints(self) -> dict[str, str]:
        """Give the hardware that each node had most recently, by its name."""
        query = select(nodes.c.name, nodes.c.fingerprint).order_by(nodes.c.last_seen, nodes.c.id)
        rows = self._database.fetch(query, dict)
        return {row["name"]: row["fingerprint"] for row in rows}

    def studies(
        self,
        *,
        use_case: str | None = None,
        node: str | None = None,
        before: int | None = None,
        most: int | None = None,
    ) -> list[StudyRecord]:
        """Give studies of a use case as it was spelled, newest first, below a number."""
        query = having(select(studies), studies, use_case=use_case, node=node)
        return self._with_trials(self._database.fetch(newest(query, studies, before, most), dict))

    def study(self, study_id: int) -> StudyRecord:
        """Give one study.

        Raises:
            NoPlanError: None has this number.
        """
        row = self._database.find(select(studies), studies.c.id, study_id, dict)
        if row is None:
            raise NoPlanError(f"no study {study_id}: ddlplan tune begins one")
        return self._with_trials([row])[0]

    def plans(
        self,
        *,
        use_case: str | None = None,
        node: str | None = None,
        study_id: int | None = None,
        before: int | None = None,
        most: int | None = None,
    ) -> list[StoredPlan]:
        """Give plans, the newest first; see `trials`."""
        query = having(select(plans), plans, use_case=use_case, node=node, study_id=study_id)
        return self._database.fetch(newest(query, plans, before, most), plan_from_row)

    def latest_use_case(self, fingerprints: Set[str]) -> str | None:
        """Give the use case of the latest plan on any of this hardware; a script is none.

        One that has a plan on all of it comes before others.
        """
        is_on_all = func.count(distinct(plans.c.fingerprint)) == len(fingerprints)
        query = (
            select(plans.c.use_case)
            .where(plans.c.fingerprint.in_(fingerprints), ~plans.c.use_case.startswith(PREFIX))
            .group_by(plans.c.use_case)
            .order_by(is_on_all.desc(), func.max(plans.c.id).desc())
        )
        found = self._database.fetch(query.limit(1), lambda row: str(row["use_case"]))
        return found[0] if found else None

    def latest_plans(self) -> list[StoredPlan]:
        """Give the latest plan of each study and those of no study, in the order of their ids.

        Without their step times and comparisons.
        """
        latest = select(func.max(plans.c.id)).where(plans.c.study_id.is_not(None))
        latest = latest.group_by(plans.c.study_id)
        query = select_brief_plans()
        query = query.where(plans.c.study_id.is_(None) | plans.c.id.in_(latest))
        return self._database.fetch(query.order_by(plans.c.id), plan_from_row)

    def trials(
        self,
        *,
        study_id: int | None = None,
        use_case: str | None = None,
        node: str | None = None,
        before: int | None = None,
        most: int | None = None,
    ) -> list[StoredTrial]:
        """Give trials, of a study or of several, the newest first; see `studies`."""
        query = having(select(trials).join(studies), studies, use_case=use_case, node=node)
        query = having(query, trials, study_id=study_id)
        return read_with_studies(self._database, newest(query, trials, before, most))

    def failures(self, study_id: int) -> list[FailureCount]:
        """Count the failed trials of a study by their outcome and reason."""
        failed = [str(outcome) for outcome in Outcome if outcome.has_failed]
        query = (
            select(trials.c.outcome, trials.c.reason, func.count().label("count"))
            .where(trials.c.study_id == study_id, trials.c.outcome.in_(failed))
            .group_by(trials.c.outcome, trials.c.reason)
            .order_by(func.count().desc(), trials.c.outcome, trials.c.reason)
        )
        return self._database.fetch(
            query, lambda row: codec.convert(row, FailureCount, source="failures")
        )

    def _with_trials(self, rows: list[dict[str, Any]]) -> list[StudyRecord]:
        ids = [row["id"] for row in rows]
        counted = (
            select(
                trials.c.study_id,
                trials.c.outcome,
                func.count().label("number"),
                func.max(trials.c.created_at).label("last"),
            )
            .where(trials.c.study_id.in_(ids))
            .group_by(trials.c.study_id, trials.c.outcome)
        )
        counts = self._database.fetch(counted, dict) if ids else []
        outcomes: dict[int, dict[str, int]] = {}
        last: dict[int, Any] = {}
        with self._database.decoding():
            for row in counts:
                study_id = row["study_id"]
                outcomes.setdefault(study_id, {})[row["outcome"]] = row["number"]
                last[study_id] = max(row["last"], last.get(study_id, row["last"]))

        def decode(row: Mapping[str, Any]) -> StudyRecord:
            with self._database.decoding(studies, row["id"]):
                values = {
                    **row,
                    "facts": find_document(row["facts"], CaseFacts) and row["facts"],
                    "outcomes": outcomes.get(row["id"], {}),
                    "last_trial_at": last.get(row["id"]),
                }
                return codec.convert(values, StudyRecord, source="study")

        return [decode(row) for row in rows]
