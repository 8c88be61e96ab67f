"""The catalog gives machines with their last probe, and studies with their trials counted."""

from __future__ import annotations

from dataclasses import replace

import pytest
import store_cases
from sample_plan import CASE
from worth_cases import NODE, STORED, TRIALS

from planner.errors import NoPlanError
from planner.store import Store
from planner.store.catalog import Catalog
from planner.store.databases.sqlite import SqliteDatabase
from planner.trials.result import Outcome

STUDY = replace(store_cases.STUDY, fingerprint=NODE.fingerprint())


def test_a_machine_has_its_last_probe_and_is_another_one_with_other_hardware(store):
    store.machines.save_probe(replace(NODE, speeds=None))
    store.machines.save_probe(NODE)
    (machine,) = store.catalog.machines()
    assert (machine.name, machine.hardware, machine.is_current) == ("vm", NODE, True)
    larger = replace(NODE, memory=replace(NODE.memory, total_bytes=2**36))
    store.machines.save_probe(larger)
    machines = store.catalog.machines()
    assert [(one.hardware, one.is_current) for one in machines] == [(larger, True), (NODE, False)]


class ReadTwice(SqliteDatabase):
    """A database whose reads are done again, as those of a server that stops meanwhile."""

    def _read(self, work):
        super()._read(work)
        return super()._read(work)


def test_a_machine_is_the_current_one_also_where_reading_was_done_again(tmp_path):
    """Then every machine was one of the past, as if its hardware had changed."""
    path = tmp_path / "planner.db"
    with Store.open(str(path)) as store:
        store.machines.save_probe(NODE)
    (machine,) = Catalog(ReadTwice(path, lock_timeout_s=1)).machines()
    assert machine.is_current


def test_a_machine_that_was_never_probed_is_there(store):
    store.studies.get_or_create(STUDY)
    assert [one.hardware for one in store.catalog.machines()] == [None]


def test_studies_have_their_trials_counted_by_outcome(store):
    study_id = store.studies.get_or_create(STUDY)
    later_id = store.studies.begin_afresh(STUDY)
    for trial in TRIALS[:3]:
        store.studies.add_trial(study_id, trial.result)
    failed = replace(TRIALS[0].result, outcome=Outcome.CRASH, measurement=None, reason="it fell")
    store.studies.add_trial(study_id, failed)
    later, first = store.catalog.studies()
    assert (later.id, later.num_trials, later.last_trial_at) == (later_id, 0, None)
    assert (first.outcomes, first.num_trials, first.is_open) == ({"ok": 3, "crash": 1}, 4, True)
    assert store.catalog.studies(most=1) == [later]
    assert store.catalog.studies(before=later_id) == [first] == [store.catalog.study(study_id)]


def test_a_study_that_is_not_there_is_said_so(store):
    for study_id in [0, 7, 2**70]:
        with pytest.raises(NoPlanError, match="no study"):
            store.catalog.study(study_id)


def test_trials_of_several_studies_have_what_their_own_study_says_of_them(store):
    made_up = replace(CASE, is_generated=True)
    studies = {
        "real": replace(STUDY, use_case="real", data="a", facts=CASE),
        "drawn": replace(STUDY, use_case="drawn", data="b", facts=made_up),
        "old": replace(STUDY, use_case="old", data="c", facts=None),
    }
    ids = {name: store.studies.get_or_create(study) for name, study in studies.items()}
    for name in ("real", "drawn", "old", "drawn"):
        store.studies.add_trial(ids[name], TRIALS[0].result)
    every = [("real", False), ("drawn", True), ("old", None), ("drawn", True)]
    assert [(one.use_case, one.is_generated) for one in store.studies.all_trials()] == every
    assert [(one.use_case, one.is_generated) for one in store.studies.all_trials("drawn")] == every[
        1::2
    ]
    latest = store.catalog.trials(most=3)
    assert [(one.use_case, one.is_generated) for one in latest] == every[:0:-1]
    (earlier,) = store.catalog.trials(study_id=ids["drawn"], before=latest[0].id)
    assert (earlier.id, earlier.is_generated) == (latest[2].id, True)


def test_failures_are_counted_by_outcome_and_reason(store):
    study_id = store.studies.get_or_create(STUDY)
    good = TRIALS[0].result
    failed = replace(good, outcome=Outcome.CRASH, measurement=None, reason="it fell")
    untimed = replace(failed, outcome=Outcome.NO_TIME, reason="no turn")
    for result in (good, failed, failed, replace(failed, reason="it hung"), untimed):
        store.studies.add_trial(study_id, result)
    found = [(one.outcome, one.reason, one.count) for one in store.catalog.failures(study_id)]
    assert found == [("crash", "it fell", 2), ("crash", "it hung", 1)]
    assert store.catalog.study(study_id).num_failed == 3


def test_of_each_study_the_latest_plan_is_given_and_those_of_no_study(store):
    study_id = store.studies.get_or_create(STUDY)
    plan = replace(STORED, study_id=study_id)
    first, second = store.plans.save(plan), store.plans.save(plan)
    alone = store.plans.save(replace(STORED, study_id=None))
    assert first < second
    latest = store.catalog.latest_plans()
    assert [one.id for one in latest] == [second, alone]
    assert [(one.comparisons, one.step_time) for one in latest] == [((), None)] * 2
    assert [one.id for one in store.catalog.plans(study_id=study_id)] == [second, first]


def test_the_use_case_of_the_latest_plan_on_some_hardware_is_given(store):
    # The story: after a script was tuned, the page of hosts said "unknown strategy 'script'".
    script = "script:python a.py"
    for use_case, mark in (("old", "a"), ("old", "b"), ("new", "a"), ("other", "b"), (script, "a")):
        store.plans.save(replace(STORED, use_case=use_case, fingerprint=mark, study_id=None))
    assert store.catalog.latest_use_case({"a", "c"}) == "new"
    assert store.catalog.latest_use_case({"a", "b"}) == "old", "it has a plan on both"
    assert store.catalog.latest_use_case(set()) is None
