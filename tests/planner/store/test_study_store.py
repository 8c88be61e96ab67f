"""Studies and their trials are read back unchanged, and evidence is never lost."""

from __future__ import annotations

from dataclasses import replace

import pytest
import store_cases
from sample_plan import CASE, FOUND, NOON, SOFTWARE

from planner.errors import StoreCorruptError
from planner.records.event_record import Topic
from planner.store.rows import trial_columns, trial_from_row
from planner.trials.result import Outcome, Role, TrialResult
from probes.disturbance import Disturbance
from probes.timing import DisturbedTurn, Measurement

STUDY = replace(store_cases.STUDY, software=SOFTWARE)

GOOD = TrialResult(
    plan=FOUND.plan,
    role=Role.SEARCH,
    outcome=Outcome.OK,
    measurement=Measurement(warmup_s=(9.1, 3.2), samples_s=(3.0, 0.1 + 0.2, 3.1)),
    peak_memory_bytes=5 * 2**30,
    peak_device_memory_bytes=9 * 2**30,
    elapsed_s=21.5,
    parameters={"processes.count": 2, "processes.share": 0.1, "format": "nhwc", "pin": True},
)
FAILED = TrialResult(
    plan=FOUND.plan,
    role=Role.SEARCH,
    outcome=Outcome.CRASH,
    reason="worker 1 of 2 ended with exit code 1",
    log_tail="Traceback ...\n\x1b[31mValueError: \udc80\0",
    elapsed_s=2.5,
)


def test_turns_that_were_disturbed_come_back_and_trials_of_earlier_releases_have_none(store):
    turn = DisturbedTurn(
        round=3, was_repeated=True, disturbance=Disturbance(others_cores=0.8, waiting_share=0.5)
    )
    measured = Measurement(samples_s=(3.0, 3.1), rounds=(2, 4), disturbed=(turn,))
    study_id = store.studies.get_or_create(STUDY)
    store.studies.add_trial(study_id, replace(GOOD, measurement=measured))
    (stored,) = store.studies.trials(study_id)
    assert stored.result.measurement == measured
    row = trial_columns(stored.result) | {"id": 1, "study_id": 1, "number": 0, "created_at": NOON}
    for name in ("others_gpu_share", "slowed_gpus"):  # earlier releases watch no GPUs
        del row["measurement"]["disturbed"][0]["disturbance"][name]
    assert trial_from_row(row).result.measurement == measured
    del row["measurement"]["disturbed"]
    assert trial_from_row(row).result.measurement == replace(measured, disturbed=())


def test_trials_come_back_as_they_were_but_for_what_no_database_can_hold(store):
    """That is kept as a visible escape."""
    study_id = store.studies.get_or_create(STUDY)
    added = [store.studies.add_trial(study_id, result) for result in (GOOD, FAILED)]
    first, second = store.studies.trials(study_id)
    assert [first.id, second.id] == [one.id for one in added]
    assert [first.number, second.number] == [one.number for one in added] == [0, 1]
    assert first.created_at == NOON
    assert first.result == GOOD
    escaped = "Traceback ...\n\x1b[31mValueError: \\udc80\\x00"
    assert second.result == replace(FAILED, log_tail=escaped)


def test_begin_of_a_search_and_what_it_finds_of_its_use_case_are_events(store):
    """The page of papers is made again after an event alone, and had the facts of the search
    before."""
    study_id = store.studies.get_or_create(STUDY)
    again = store.studies.get_or_create(replace(STUDY, facts=replace(CASE, is_generated=True)))
    afresh = store.studies.begin_afresh(STUDY)
    assert again == study_id != afresh
    events = [(event.topic, event.subject_id) for event in store.events.after(0)]
    assert events == [(Topic.STUDY, number) for number in (study_id, again, afresh)]


def test_other_hardware_software_or_data_is_another_study(store):
    every = [
        STUDY,
        replace(STUDY, node="other"),
        replace(STUDY, fingerprint="sha256:bb"),
        replace(STUDY, precision="auto"),
        replace(STUDY, data="photos sha256:ee"),
        replace(STUDY, software=SOFTWARE | {"torch": "2.15.1"}),
        replace(STUDY, software=SOFTWARE | {"ddlplan": "0.2.0"}),
        replace(STUDY, software=SOFTWARE | {"python": "3.12.1"}),
    ]
    assert len(set(map(store.studies.get_or_create, every))) == 8


def test_a_seed_a_bug_fix_release_of_python_or_another_folder_goes_on_with_the_study(store):
    python = SOFTWARE | {"python": "3.11.9"}
    every = [STUDY, replace(STUDY, seed=7), replace(STUDY, software=python)]
    every += [replace(STUDY, use_case="/copy.py:Case")]
    assert len(set(map(store.studies.get_or_create, every))) == 1


def test_a_fresh_study_starts_empty_and_keeps_the_evidence_of_the_old_one(store):
    old = store.studies.get_or_create(STUDY)
    store.studies.add_trial(old, GOOD)
    fresh = store.studies.begin_afresh(STUDY)
    assert store.studies.trials(fresh) == []
    assert store.studies.get_or_create(STUDY) == fresh
    assert [trial.result for trial in store.studies.trials(old)] == [GOOD]


def test_trials_up_to_the_end_of_a_search_are_finished(store):
    study_id = store.studies.get_or_create(STUDY)
    store.studies.add_trial(study_id, GOOD)
    assert store.studies.count_finished_trials(study_id) == 0
    store.plans.save(replace(FOUND, study_id=study_id))
    assert store.studies.count_finished_trials(study_id) == 0
    store.plans.save(replace(FOUND, study_id=study_id), ends_search=True)
    assert store.studies.count_finished_trials(study_id) == 1
    store.studies.add_trial(study_id, FAILED)
    assert store.studies.count_finished_trials(study_id) == 1
    store.plans.end_without_plan(study_id)
    assert store.studies.count_finished_trials(study_id) == 2
    assert store.studies.count_finished_trials(store.studies.begin_afresh(STUDY)) == 0


def test_trials_of_all_studies_are_chosen_by_use_case_and_node(store):
    other = replace(STUDY, use_case="complexsmall", data="photos sha256:ee")
    for study in (STUDY, replace(STUDY, node="other"), other):
        store.studies.add_trial(store.studies.get_or_create(study), GOOD)
    assert len(store.studies.all_trials()) == 3
    assert [trial.study_id for trial in store.studies.all_trials("simplebig")] == [1, 2]
    assert [trial.study_id for trial in store.studies.all_trials("simplebig", "other")] == [2]


def test_a_trial_of_no_study_is_not_kept(store):
    with pytest.raises(StoreCorruptError, match=r"(?i)foreign key"):
        store.studies.add_trial(99, GOOD)
    assert store.studies.all_trials() == []


def test_trials_of_an_equal_use_case_elsewhere_are_its_own(store):
    for place in ("/here/a.py:Case", "/copy/a.py:Case"):
        study = replace(STUDY, use_case=place, precision=f"for {place}")
        store.studies.add_trial(store.studies.get_or_create(study), GOOD)
    assert len(store.studies.all_trials("/here/a.py:Case")) == 2
    assert len(store.studies.find_for_use_case("/new/a.py:Case", "vm")) == 2
