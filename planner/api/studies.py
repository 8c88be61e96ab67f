"""Studies: what was tried on a machine, and what is known of each setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.plans.software import current_software
from planner.plans.stored_plan import StoredPlan, stale_reasons
from planner.records.machine_record import MachineRecord
from planner.records.study_record import FailureCount, StudyRecord
from planner.store import Store
from planner.trials.result import Outcome
from planner.tuning.study import StoredTrial
from planner.worth.setting_effects import SettingEffect, learn_effects


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStudy:
    """A study with all that came of it."""

    record: StudyRecord
    trials: Sequence[StoredTrial]
    """In the order in which they ended; the latest, where only so many were asked for."""

    plans: Sequence[StoredPlan]
    """That its searches stored, the latest last; removed ones are not among them."""

    machine: MachineRecord | None
    """``None`` where no probe of it is on record."""

    failures: Sequence[FailureCount] = ()
    """Of all trials, the most frequent first."""

    stale_reasons: tuple[str, ...] = ()
    """Why the latest plan is stale; empty where it is not."""

    @property
    def best(self) -> StoredTrial | None:
        """The fastest of these trials that could be chosen."""
        known = [
            (rate.median, trial)
            for trial in self.trials
            if trial.result.role.is_for_choice
            and trial.result.outcome is Outcome.OK
            and (rate := trial.result.throughput_samples_per_s()) is not None
        ]
        return max(known, key=lambda item: item[0])[1] if known else None


def find(
    use_case: str | None = None,
    node: str | None = None,
    *,
    before: int | None = None,
    most: int | None = None,
    db: str = "planner.db",
) -> list[StudyRecord]:
    """Give studies without their trials, the newest first.

    Example:
        >>> from planner.api import studies
        >>> studies.find(most=1)[0].use_case  # doctest: +SKIP
        'simplebig'

    Args:
        use_case: Only of this one, as it was spelled.
        node: Only on this node.
        before: With a lower number.
        most: At most so many.
        db: Database.

    Raises:
        NoDatabaseError: There is no database.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        return store.catalog.studies(use_case=use_case, node=node, before=before, most=most)


def get_record(study_id: int, *, db: str = "planner.db") -> StudyRecord:
    """Give one study without its trials.

    Example:
        >>> from planner.api import studies
        >>> studies.get_record(3).outcomes  # doctest: +SKIP
        {'ok': 55, 'out_of_memory': 6}

    Raises:
        NoPlanError: None has this number.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        return store.catalog.study(study_id)


def get(study_id: int, *, most_trials: int | None = None, db: str = "planner.db") -> FoundStudy:
    """Give one study with its trials.

    Example:
        >>> from planner.api import studies
        >>> len(studies.get(3).trials)  # doctest: +SKIP
        61

    Args:
        study_id: Its number.
        most_trials: Of its trials at most the latest so many.
        db: Database.

    Raises:
        NoPlanError: None has this number.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        record = store.catalog.study(study_id)
        machines = store.catalog.machines()
        plans = store.catalog.plans(study_id=study_id)
        trials = store.catalog.trials(study_id=study_id, most=most_trials)
        failures = store.catalog.failures(study_id)
        fingerprint = store.catalog.fingerprints().get(record.node)
    place = record.node, record.fingerprint
    machine = next((one for one in machines if (one.name, one.fingerprint) == place), None)
    return FoundStudy(
        record=record,
        trials=trials[::-1],
        plans=plans[::-1],
        machine=machine,
        failures=failures,
        stale_reasons=stale_reasons(plans[0], fingerprint=fingerprint, software=current_software())
        if plans
        else (),
    )


def learn(found: FoundStudy) -> list[SettingEffect]:
    """Say what other values of its settings would do to a study's best plan.

    Example:
        >>> from planner.api import studies
        >>> [(one.setting, one.other) for one in studies.learn(studies.get(3))]  # doctest: +SKIP
        [('allocator', 'retain'), ('node_batch', '64')]

    Args:
        found: As `get` gives it; its trials decide.

    Returns:
        Nothing where no trial was measured, or the use case or the machine is not on record.
    """
    hardware = None if found.machine is None else found.machine.hardware
    if found.best is None or found.record.facts is None or hardware is None:
        return []
    results = [trial.result for trial in found.trials]
    return learn_effects(found.best.result.plan, results, found.record.facts, hardware)
