"""Plan store: plans with their evidence, and the one of them to use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection, select

from planner.errors import NoPlanError
from planner.plans.stored_plan import StoredPlan, find_best, stale_reasons
from planner.records.event_record import Topic
from planner.scripts.naming import code_of
from planner.store.databases.database import Database, insert
from planner.store.databases.tables import plans
from planner.store.event_log import record_event
from planner.store.rows import plan_columns, plan_from_row
from planner.store.selections import having, is_namesake, of_equal_use_case, select_brief_plans
from planner.store.study_store import finish_search


class PlanStore:
    """Plans of a database. Each method is one transaction."""

    def __init__(self, database: Database, now: Callable[[], datetime]) -> None:
        self._database = database
        self._now = now

    def save(self, stored: StoredPlan, *, ends_search: bool = False) -> int:
        """Save a plan with its evidence and return its id.

        ``ends_search`` says that its search has come to its end: the next one of its study is new.
        """

        def work(connection: Connection) -> int:
            if ends_search and stored.study_id is not None:
                finish_search(connection, stored.study_id, self._now)
            plan_id = insert(connection, plans, plan_columns(stored))
            record_event(connection, Topic.PLAN, plan_id, self._now)
            return plan_id

        return self._database.write(work)

    def end_without_plan(self, study_id: int) -> None:
        """Mark a search as finished that has found no plan."""
        self._database.write(lambda connection: finish_search(connection, study_id, self._now))

    def get(self, plan_id: int) -> StoredPlan:
        """Give one plan.

        Raises:
            NoPlanError: No plan has this id.
        """
        found = self._database.find(select(plans), plans.c.id, plan_id, plan_from_row)
        if found is None:
            raise _lacking(plan_id)
        return found

    def find(
        self, use_case: str | None = None, node: str | None = None, *, brief: bool = False
    ) -> list[StoredPlan]:
        """Give the plans in the order of their ids.

        Those of a use case are the ones that were found where it lies, and those of an equal one
        that lies elsewhere. Brief ones are without step times and comparisons.
        """
        query = having(select_brief_plans() if brief else select(plans), plans, node=node)
        query = of_equal_use_case(query, plans, plans.c.use_case_digest, use_case)
        return self._database.fetch(query.order_by(plans.c.id), plan_from_row)

    def find_namesakes(self, use_case: str) -> dict[str, str]:
        """Give where objects of the same name as this use case lie, by their digests."""
        query = (
            select(plans.c.use_case_digest, plans.c.use_case)
            .where(is_namesake(plans, use_case), plans.c.use_case_digest.is_not(None))
            .order_by(plans.c.id)
        )
        rows = self._database.fetch(query, dict)
        return {row["use_case_digest"]: row["use_case"] for row in rows}

    def best(
        self,
        use_case: str,
        *,
        software: Mapping[str, str],
        fingerprint: str | None,
        node: str,
        code: str | None = None,
    ) -> StoredPlan | None:
        """Give the plan to use, ``None`` where none fits; stale only where every other is stale.

        `find_best` chooses: the latest of each study, fp32 before speed.

        Args:
            use_case: Use case that is trained.
            software: Versions that would run it.
            fingerprint: Hardware of the node; ``None`` where it is not known.
            node: Node that runs it. Its own plan comes before those of nodes with equal hardware,
                and its plans on other hardware come last.
            code: Digest of the files of a script: a plan that was measured with others is given
                only where there is none that was measured with these.
        """
        every = self.find(use_case)
        own = [plan for plan in every if plan.node == node]
        equal = _of_code([plan for plan in every if plan.fingerprint == fingerprint], code)
        best = find_best(equal or _of_code(own, code), fingerprint=fingerprint, software=software)
        proven = [plan for plan in equal if plan.node == node]
        mine = find_best(proven, fingerprint=fingerprint, software=software)
        if best is None or mine is None or mine.plan.precision != best.plan.precision:
            return best
        is_stale = stale_reasons(mine, fingerprint=fingerprint, software=software)
        return best if is_stale else mine

    def remove(self, plan_id: int) -> None:
        """Delete a plan, also one that cannot be read; its trials stay.

        Raises:
            NoPlanError: No plan has this id.
        """
        if self._database.find(select(plans.c.id), plans.c.id, plan_id, dict) is None:
            raise _lacking(plan_id)

        def work(connection: Connection) -> None:
            connection.execute(plans.delete().where(plans.c.id == plan_id))
            record_event(connection, Topic.PLAN, plan_id, self._now)

        self._database.write(work)


def _lacking(plan_id: int) -> NoPlanError:
    return NoPlanError(f"no plan {plan_id}: ddlplan plans list shows which there are")


def _of_code(found: Sequence[StoredPlan], code: str | None) -> list[StoredPlan]:
    """Keep the plans that were measured with these files of a script, where there are any."""
    same = [plan for plan in found if code is not None and code_of(plan.use_case_digest) == code]
    return same or list(found)
