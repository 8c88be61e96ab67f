"""Rows of jobs: each change is one transaction and an event, and an end is final."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
import training_samples
from sample_plan import NOON

from launch.system.process_identity import ProcessIdentity
from planner.errors import NoJobError
from planner.records.job_record import JobState
from planner.store import Store

NOW = NOON + timedelta(microseconds=250)
REQUEST = {"use_case": "fire", "epochs": 3, "resume": True}
JOB = replace(training_samples.JOB, created_at=NOW, request=REQUEST)


@pytest.fixture
def clock():
    return [NOW]


@pytest.fixture
def store(tmp_path, clock):
    with Store.open(str(tmp_path / "planner.db"), now=lambda: clock[0]) as opened:
        yield opened


@pytest.fixture
def job(store):
    return store.jobs.add(JOB).id


def test_job_is_read_as_it_was_written(store):
    whole = replace(
        JOB,
        folder="/home/ada/jobs/1",
        process=ProcessIdentity.of(),
        heartbeat_at=NOW,
        cancel_requested_at=NOW,
        exit_code=3,
        error="no plan",
        plan_id=7,
        progress={"doing": "training"},
    )
    added = store.jobs.add(whole)
    assert added == replace(whole, id=1)
    assert store.jobs.get(1) == added


@pytest.mark.parametrize("job_id", [0, -1, 2, 2**70])
def test_job_that_is_not_there_is_said_so(store, job, job_id):
    with pytest.raises(NoJobError, match=f"no job {job_id}: ddlplan jobs list"):
        store.jobs.get(job_id)


def test_jobs_are_found_newest_first_by_machine_and_state(store):
    here = [store.jobs.add(JOB).id for _ in range(3)]
    far = store.jobs.add(replace(JOB, machine="far")).id
    store.jobs.end(here[0], JobState.DONE)
    ids = lambda **choice: [one.id for one in store.jobs.find(**choice)]  # noqa: E731
    assert ids() == [far, *reversed(here)]
    assert ids(machine="vm") == here[::-1]
    assert ids(states=[JobState.QUEUED], machine="vm") == here[:0:-1]
    assert ids(before=here[2], most=1) == [here[1]]


def test_only_a_queued_job_is_started_and_only_once(store, job):
    assert store.jobs.set_process(job, ProcessIdentity.of())
    assert store.jobs.start(job, ProcessIdentity.of())
    assert not store.jobs.start(job, ProcessIdentity.of())
    assert not store.jobs.set_process(job, None)
    assert store.jobs.get(job).process == ProcessIdentity.of()


def test_end_is_final(store, job):
    assert not store.jobs.end(job, JobState.FAILED, from_states=[JobState.RUNNING])
    assert store.jobs.end(job, JobState.CANCELLED, ended_at=NOW + timedelta(seconds=5))
    assert not store.jobs.end(job, JobState.DONE, exit_code=0)
    assert not store.jobs.request_cancel(job)
    found = store.jobs.get(job)
    assert (found.state, found.exit_code) == (JobState.CANCELLED, None)
    assert found.ended_at == NOW + timedelta(seconds=5)


def test_end_of_one_process_is_not_that_of_the_next(database):
    with Store.open(database.url) as store:
        job = store.jobs.add(replace(JOB, process=ProcessIdentity.of()))
        taken = replace(job.process, pid=7)
        store.jobs.set_process(job.id, taken)
        assert not store.jobs.end(job.id, JobState.INTERRUPTED, judged=job)
        now = store.jobs.get(job.id)
        assert (now.state, now.process) == (JobState.QUEUED, taken)
        assert store.jobs.end(job.id, JobState.INTERRUPTED, judged=now)


def test_end_is_asked_for_once(store, job, clock):
    assert store.jobs.request_cancel(job)
    clock[0] += timedelta(seconds=9)
    assert not store.jobs.request_cancel(job)
    assert store.jobs.get(job).cancel_requested_at == NOW


def test_progress_and_links_stay_until_others_are_given(store, job):
    store.jobs.start(job, None)
    store.jobs.set_progress(job, {"doing": "training"}, plan_id=7)
    store.jobs.set_progress(job, None)
    found = store.jobs.get(job)
    assert (found.progress, found.progress_at, found.plan_id) == ({"doing": "training"}, NOW, 7)
    store.jobs.end(job, JobState.DONE)
    store.jobs.set_progress(job, {"doing": "too late"})
    assert store.jobs.get(job).progress == {"doing": "training"}


def test_every_change_but_a_sign_of_life_is_an_event(store, job):
    first = store.events.newest()
    store.jobs.beat(job)
    assert store.events.newest() == first
    store.jobs.start(job, None)
    store.jobs.set_progress(job, {"doing": "training"})
    store.jobs.end(job, JobState.DONE)
    store.jobs.end(job, JobState.FAILED)
    events = store.events.after(first)
    assert [(event.topic, event.subject_id) for event in events] == [("job", job)] * 3
