"""The catalog gives machines with their last probe, and studies with their trials counted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from worth_cases import NODE, TRIALS

from planner.errors import NoPlanError
from planner.store import Store
from planner.trials.result import Outcome
from planner.tuning.study import Study

STUDY = Study(
    use_case="simplebig",
    node="vm",
    fingerprint=NODE.fingerprint(),
    precision="fp32",
    software={"torch": "2.15.0"},
    data="sha256:dd",
    seed=0,
)


@pytest.fixture
def store(database):
    with Store.open(database.url) as opened:
        yield opened


def test_a_machine_has_its_last_probe(store):
    store.save_probe(replace(NODE, speeds=None))
    store.save_probe(NODE)
    (machine,) = store.catalog.machines()
    assert (machine.name, machine.hardware, machine.is_current) == ("vm", NODE, True)


def test_a_machine_with_other_hardware_is_another_one(store):
    store.save_probe(NODE)
    larger = replace(NODE, memory=replace(NODE.memory, total_bytes=2**36))
    store.save_probe(larger)
    machines = store.catalog.machines()
    assert [(one.hardware, one.is_current) for one in machines] == [(larger, True), (NODE, False)]


def test_a_machine_that_was_never_probed_is_there(store):
    store.get_or_create_study(STUDY)
    assert [one.hardware for one in store.catalog.machines()] == [None]


def test_studies_have_their_trials_counted_by_outcome(store):
    study_id = store.get_or_create_study(STUDY)
    later_id = store.begin_study_afresh(STUDY)
    for trial in TRIALS[:3]:
        store.add_trial(study_id, trial.result)
    failed = replace(TRIALS[0].result, outcome=Outcome.CRASH, measurement=None, reason="it fell")
    store.add_trial(study_id, failed)
    later, first = store.catalog.studies()
    assert (later.id, later.num_trials, later.last_trial_at) == (later_id, 0, None)
    assert (first.outcomes, first.num_trials, first.is_open) == ({"ok": 3, "crash": 1}, 4, True)
    assert store.catalog.studies(most=1) == [later]
    assert store.catalog.studies(before=later_id) == [first] == [store.catalog.study(study_id)]


@pytest.mark.parametrize("study_id", [0, 7, 2**70])
def test_a_study_that_is_not_there_is_said_so(store, study_id):
    with pytest.raises(NoPlanError, match="no study"):
        store.catalog.study(study_id)
