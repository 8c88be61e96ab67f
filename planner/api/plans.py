"""Stored plans and their trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch.case_facts import CaseFacts
from launch.workload import Workload
from planner.plans.software import current_software
from planner.plans.stored_plan import StoredPlan, stale_reasons
from planner.plans.stored_plan import find_best as choose_best
from planner.scripts.naming import code_digest, describe_trained, is_script, script_arguments
from planner.store import Store
from planner.tuning.study import StoredTrial

if TYPE_CHECKING:
    from planner.input_cost.epochs import InputCost
    from planner.worth.batch_advice import MeasuredNoise
    from planner.worth.worth import PlanWorth

_RECENT_TRAININGS = 20
"""With the same data, in which a noise scale is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPlan:
    """A stored plan as it is now."""

    stored: StoredPlan

    stale_reasons: tuple[str, ...] = ()
    """What is other than when it was measured: its node's hardware, or the software."""

    worth: PlanWorth | None = None
    """What these trials say about it."""

    input: InputCost | None = None
    """Time of its epochs with the data that it was found with, where `probe` has measured them."""

    trials: tuple[StoredTrial, ...] = ()
    """Of its search, where one plan alone was asked for."""

    data: str | None = None
    """Where the data of that search were; ``None`` where the use case finds them by itself."""

    precision: str | None = None
    """What that search might choose: ``fp32``, ``bf16`` or ``auto``; ``None`` where that is not
    known."""

    @property
    def is_stale(self) -> bool:
        """Whether its times may not hold any more."""
        return bool(self.stale_reasons)


def find(
    use_case: str | None = None,
    node: str | None = None,
    *,
    brief: bool = False,
    db: str = "planner.db",
) -> list[FoundPlan]:
    """Give the stored plans, in the order in which they were stored.

    Example:
        >>> from planner.api import plans
        >>> [plan.stored.id for plan in plans.find("simplebig")]  # doctest: +SKIP
        [1, 3]

    Args:
        use_case: Only of this one, as `make_workload` spells it.
        node: Only of this node.
        brief: Without their step times and comparisons, which take most of the time of many.
        db: Database: a path, or ``postgresql+psycopg://user@host/name``.

    Raises:
        NoDatabaseError: There is no database.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        found = store.plans.find(use_case, node, brief=brief)
        return _judge_all(found, store.catalog.fingerprints())


def find_latest(
    use_case: str | None = None,
    node: str | None = None,
    *,
    before: int | None = None,
    most: int | None = None,
    db: str = "planner.db",
) -> list[FoundPlan]:
    """Give stored plans, the newest first, in parts.

    Example:
        >>> from planner.api import plans
        >>> [plan.stored.id for plan in plans.find_latest(most=2)]  # doctest: +SKIP
        [3, 1]

    Args:
        use_case: Only of this one, as it was spelled.
        node: Only of this node.
        before: With a lower number.
        most: At most so many.
        db: Database.

    Raises:
        NoDatabaseError: There is no database.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        found = store.catalog.plans(use_case=use_case, node=node, before=before, most=most)
        return _judge_all(found, store.catalog.fingerprints())


def get(plan_id: int, *, db: str = "planner.db") -> FoundPlan:
    """Give one plan with the trials of its search.

    Example:
        >>> from planner.api import plans
        >>> plans.get(1).stored.plan.strategy  # doctest: +SKIP
        'threads'

    Raises:
        NoPlanError: There is none with this number.
    """
    with Store.open(db, create=False) as store:
        return _judge_with_trials(store, store.plans.get(plan_id))


def find_best(
    use_case: str,
    node: str | None = None,
    *,
    data: Path | None = None,
    db: str = "planner.db",
) -> FoundPlan:
    """Give the plan that `launch` would use.

    Example:
        >>> from planner.api import plans
        >>> plans.find_best("simplebig").stored.id  # doctest: +SKIP
        1

    Args:
        use_case: As `make_workload` spells it.
        node: On this node, as it was last seen; this machine where left out.
        data: Folder or file of its data; read only where its plans may have been found in another
            folder.
        db: Database.

    Raises:
        NoPlanError: There is none.
    """
    from planner.api.use_cases import find_known_place  # not to list plans: it starts workers
    from planner.cancellation import Cancellation
    from planner.jobs.hosts import Hosts
    from planner.jobs.suggested_command import suggest_command
    from planner.plans.missing_plans import make_missing_plan_error
    from planner.trials.reports import ignore
    from probes.node import probe

    software = current_software()
    with Store.open(db, create=False) as store:
        fingerprint: str | None
        if node is None:
            here = probe(quick=True)
            node, fingerprint = here.node, here.fingerprint()
        else:
            fingerprint = store.catalog.fingerprints().get(node)
        path = None if data is None else str(data.absolute())
        workload = Workload(use_case=use_case, data=path)
        known_as, code = use_case, None
        if is_script(use_case):
            code = code_digest(script_arguments(use_case), Path.cwd())
        else:
            known_as = find_known_place(store, workload, ignore, Cancellation())
        stored = store.plans.best(
            known_as, software=software, fingerprint=fingerprint, node=node, code=code
        )
        if stored is None:
            remedy = suggest_command("tune", workload, db=db, hosts=Hosts.this_machine())
            raise make_missing_plan_error(describe_trained(use_case), f"on {node}", remedy)
        reasons = stale_reasons(stored, fingerprint=fingerprint, software=software)
        return replace(_judge_with_trials(store, stored), stale_reasons=reasons)


def find_best_of_each(*, db: str = "planner.db") -> list[FoundPlan]:
    """Give the best plan of each use case on each machine, by their names.

    Without step times, comparisons and worth.

    Example:
        >>> from planner.api import plans
        >>> [(plan.stored.use_case, plan.stored.node) for plan in plans.find_best_of_each()]
        ... # doctest: +SKIP
        [('simplebig', 'node1'), ('simplebig', 'node2')]

    Raises:
        NoDatabaseError: There is no database.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        plans, fingerprints = store.catalog.latest_plans(), store.catalog.fingerprints()
    software = current_software()
    best: dict[tuple[str, int | None], StoredPlan] = {}
    for use_case, node in sorted({(plan.use_case, plan.node) for plan in plans}):
        of_node = [plan for plan in plans if plan.node == node]
        digests = {plan.use_case_digest for plan in of_node if plan.use_case == use_case} - {None}
        # An equal use case that lies elsewhere counts, as it does for a launch.
        equal = [p for p in of_node if p.use_case == use_case or p.use_case_digest in digests]
        found = choose_best(equal, fingerprint=fingerprints.get(node), software=software)
        assert found is not None  # there is at least one
        best.setdefault((node, found.id), found)
    ordered = sorted(best.values(), key=lambda one: (one.use_case, one.node))
    return _judge_all(ordered, fingerprints)


def import_file(file: Path, *, db: str = "planner.db") -> FoundPlan:
    """Store a plan from a file that ``ddlplan plans export`` wrote.

    Example:
        >>> from pathlib import Path
        >>> from planner.api import plans
        >>> plans.import_file(Path("plan.json")).stored.id  # doctest: +SKIP
        4

    Raises:
        PlanFileError: The file cannot be read.
    """
    from planner.plans.plan_file import read_plan_file  # not to list plans

    stored = read_plan_file(file)  # first: a file that is no good must not make a database
    return _save(stored, db)


def import_document(document: Mapping[str, Any], *, db: str = "planner.db") -> FoundPlan:
    """Store a plan from what a file of ``ddlplan plans export`` holds.

    Example:
        >>> import json
        >>> from pathlib import Path
        >>> from planner.api import plans
        >>> document = json.loads(Path("plan.json").read_text())  # doctest: +SKIP
        >>> plans.import_document(document).stored.id  # doctest: +SKIP
        5

    Raises:
        PlanFileError: It is no plan.
    """
    from planner.plans.plan_file import plan_from_document  # not to list plans

    return _save(plan_from_document(document), db)


def remove(plan_id: int, *, db: str = "planner.db") -> None:
    """Remove a plan; its trials stay.

    Example:
        >>> from planner.api import plans
        >>> plans.remove(4)  # doctest: +SKIP

    Raises:
        NoPlanError: There is none with this number.
    """
    with Store.open(db, create=False) as store:
        store.plans.remove(plan_id)


def find_trials(
    use_case: str | None = None, node: str | None = None, *, db: str = "planner.db"
) -> Sequence[StoredTrial]:
    """Give every trial, failed ones with their reason.

    Example:
        >>> from planner.api import plans
        >>> plans.find_trials("simplebig")[0].result.outcome  # doctest: +SKIP
        <Outcome.OK: 'ok'>

    Raises:
        NoDatabaseError: There is no database.
    """
    with Store.open(db, create=False) as store:
        return store.studies.all_trials(use_case, node)


def find_latest_trials(
    study_id: int | None = None,
    use_case: str | None = None,
    node: str | None = None,
    *,
    before: int | None = None,
    most: int | None = None,
    db: str = "planner.db",
) -> Sequence[StoredTrial]:
    """Give trials, the newest first, in parts.

    Example:
        >>> from planner.api import plans
        >>> plans.find_latest_trials(study_id=3, most=1)[0].number  # doctest: +SKIP
        60

    Args:
        study_id: Only of this study.
        use_case: Only of this one, as it was spelled.
        node: Only of this node.
        before: With a lower number.
        most: At most so many.
        db: Database.

    Raises:
        NoPlanError: There is no such study.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        if study_id is not None:
            store.catalog.study(study_id)  # or it raises
        return store.catalog.trials(
            study_id=study_id, use_case=use_case, node=node, before=before, most=most
        )


def _save(stored: StoredPlan, db: str) -> FoundPlan:
    with Store.open(db) as store:
        return _judge(store, store.plans.get(store.plans.save(stored)))


def _judge(store: Store, stored: StoredPlan) -> FoundPlan:
    return _judge_all([stored], store.catalog.fingerprints())[0]


def _judge_all(found: Sequence[StoredPlan], fingerprints: Mapping[str, str]) -> list[FoundPlan]:
    software = current_software()
    return [
        FoundPlan(
            stored=one,
            stale_reasons=stale_reasons(
                one, fingerprint=fingerprints.get(one.node), software=software
            ),
        )
        for one in found
    ]


def _find_noise(store: Store, stored: StoredPlan, facts: CaseFacts | None) -> MeasuredNoise | None:
    """Find the latest noise scale that a training of a plan's use case and data has measured.

    What was trained under its name and is another one, or was changed since, does not count. Else
    it is the one that the plan was chosen by. Where all are unclear, the latest of those says why
    nothing is known.
    """
    from planner.worth.batch_advice import MeasuredNoise

    if facts is None:
        return None
    measured = [
        MeasuredNoise(noise=epoch.noise, training_id=training.id, epoch=epoch.epoch)
        for training in store.trainings.find_with_data(
            facts.digest, facts.data, most=_RECENT_TRAININGS
        )
        for epoch in reversed(training.epochs_done)
        if epoch.noise is not None and training.id is not None
    ]
    if (clear := next((one for one in measured if one.noise.scale), None)) is not None:
        return clear
    if stored.objective is not None:
        return MeasuredNoise.of_objective(stored.objective)
    return measured[0] if measured else None


def _judge_with_trials(store: Store, stored: StoredPlan) -> FoundPlan:
    from planner.input_cost.epochs import assess_input  # not to list plans
    from planner.worth.worth import assess

    judged = _judge(store, stored)
    if stored.study_id is None:
        return judged
    trials = store.studies.trials(stored.study_id)
    facts = store.studies.case_facts(stored.study_id)
    node = store.machines.latest_probe(stored.fingerprint, node=stored.node)
    worth = assess(stored, trials, facts, node, _find_noise(store, stored, facts))
    measured = () if facts is None or node is None else node.data
    data = next((one for one in measured if facts is not None and one.path == facts.data), None)
    cost = None if node is None else assess_input(stored, facts, node, data)
    return replace(
        judged,
        trials=tuple(trials),
        worth=worth,
        input=cost,
        data=None if facts is None else facts.data,
        precision=store.studies.precision_choice(stored.study_id),
    )
