"""What is said of a job is true now: by its processes, its exit record, its last sign of life."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from supervision_queue import another_process
from training_samples import JOB

from launch.system.process_identity import ProcessIdentity
from planner.errors import StoreUnwritableError
from planner.plans.stored_plan import utc_now
from planner.records.job_record import JobRecord, JobState
from planner.supervision.job_folder import ExitRecord, JobFolder
from planner.supervision.states import true_jobs

HERE = ProcessIdentity.of()


@pytest.fixture
def add(store, tmp_path):
    def do(**changes) -> JobRecord:
        running = replace(
            JOB,
            created_at=utc_now(),
            machine=HERE.machine,
            state=JobState.RUNNING,
            process=HERE,
            heartbeat_at=utc_now(),
        )
        job = store.jobs.add(replace(running, **changes))
        if job.is_detached:
            store.jobs.set_folder(job.id, str(JobFolder.create(job, tmp_path / "jobs").path))
        return store.jobs.get(job.id)

    return do


def judge(store, job):
    (found,) = true_jobs(store, [store.jobs.get(job.id)])
    return found


def test_job_whose_process_runs_is_as_stored(store, add):
    queued, running = add(state=JobState.QUEUED), add()
    assert [judge(store, job).state for job in (queued, running)] == ["queued", "running"]


@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.RUNNING])
@pytest.mark.parametrize("is_detached", [True, False])
def test_job_without_process_and_exit_record_is_interrupted_for_good(
    store, add, dead, state, is_detached
):
    job = add(state=state, process=dead, is_detached=is_detached)
    assert judge(store, job).state is JobState.INTERRUPTED
    stored = store.jobs.get(job.id)
    assert (stored.state, stored.exit_code) == (JobState.INTERRUPTED, None)
    assert "killed" in stored.error
    assert stored.ended_at is not None


@pytest.mark.parametrize("is_alive", [True, False])
def test_exit_record_says_how_a_job_ended_that_could_not_be_stored(store, add, dead, is_alive):
    job = add(process=HERE if is_alive else dead)
    left = ExitRecord(state=JobState.FAILED, exit_code=3, error="no plan", ended_at=utc_now())
    JobFolder.find(job).write_exit(left)
    found = judge(store, job)
    assert (found.state, found.exit_code, found.error) == (JobState.FAILED, 3, "no plan")
    assert found == store.jobs.get(job.id)


@pytest.mark.parametrize("takes", ["set_process", "start"])
def test_job_that_another_process_has_taken_since_is_not_ended(store, add, dead, takes):
    """Once `--detach` lost jobs: who read the row while it named the command that submitted it, and
    looked for that process when it had ended, stored the job as interrupted."""
    read = add(state=JobState.QUEUED, process=dead)
    getattr(store.jobs, takes)(read.id, HERE)
    (found,) = true_jobs(store, [read])
    assert found == store.jobs.get(read.id)
    assert found.process == HERE
    assert not found.state.is_over


def test_command_that_outlives_its_supervisor_is_still_running(store, add, dead):
    job = add(process=dead)
    with another_process() as command:
        JobFolder.find(job).write_command(command)
        assert judge(store, job).state is JobState.RUNNING
    assert judge(store, job).state is JobState.INTERRUPTED


def test_end_that_was_stored_stays(store, add, dead):
    job = add(process=dead)
    assert store.jobs.end(job.id, JobState.DONE, exit_code=0)
    left = ExitRecord(state=JobState.FAILED, exit_code=3, error="late", ended_at=utc_now())
    JobFolder.find(job).write_exit(left)
    assert judge(store, job).state is JobState.DONE


@pytest.mark.parametrize(
    "elsewhere", [{"machine": "far", "boot_id": "far"}, {"pid_namespace": "pid:[7]"}]
)
def test_job_that_cannot_be_seen_from_here_is_judged_by_its_last_sign_of_life(
    store, add, elsewhere
):
    """Another container of the same machine has other process numbers: once its jobs, whose
    supervisors lived, were called interrupted from here."""
    there = replace(HERE, **elsewhere)
    now = utc_now()
    heard = add(process=there, heartbeat_at=now - timedelta(seconds=20))
    silent = add(process=there, heartbeat_at=now - timedelta(seconds=40))
    assert judge(store, heard).state is JobState.RUNNING
    found = judge(store, silent)
    assert found.state is JobState.INTERRUPTED
    assert "has not been heard of since" in found.error
    # It may only be slow, or its clock be wrong: who can see it has the last word.
    assert store.jobs.get(silent.id).state is JobState.RUNNING


@pytest.mark.parametrize(
    ("silent_s", "shown", "stored"),
    [
        (10, JobState.RUNNING, JobState.RUNNING),
        (60, JobState.INTERRUPTED, JobState.RUNNING),
        (130, JobState.INTERRUPTED, JobState.INTERRUPTED),
    ],
)
def test_job_of_an_earlier_boot_is_interrupted_for_good_once_it_was_silent_for_long(
    store, add, silent_s, shown, stored
):
    """Once a job that ran when the power failed was stored as running for ever."""
    heard = utc_now() - timedelta(seconds=silent_s)
    job = add(process=replace(HERE, boot_id="before"), heartbeat_at=heard)
    assert judge(store, job).state is shown
    assert store.jobs.get(job.id).state is stored


@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.RUNNING])
@pytest.mark.parametrize("has_process", [True, False])
def test_nothing_is_written_of_a_job_of_another_machine(store, add, dead, state, has_process):
    """Once a look at a copied database ended the jobs of the machine that it came from."""
    process = replace(dead, machine="atlas") if has_process else None
    heard = utc_now() - timedelta(hours=11)
    job = add(state=state, machine="atlas", process=process, heartbeat_at=heard)
    found = judge(store, job)
    assert found.state is JobState.INTERRUPTED
    assert found.error.startswith("atlas has not been heard of since")
    assert found.ended_at is None
    assert store.jobs.get(job.id) == job


def test_exit_record_of_another_machine_is_shown_and_not_stored(store, add, dead):
    job = add(machine="atlas", process=replace(dead, machine="atlas"))
    left = ExitRecord(state=JobState.FAILED, exit_code=3, error="no plan", ended_at=utc_now())
    JobFolder.find(job).write_exit(left)
    assert judge(store, job).state is JobState.FAILED
    assert store.jobs.get(job.id) == job


def test_interrupted_job_has_ended_when_it_was_last_heard_of(store, add, dead):
    heard = utc_now() - timedelta(hours=11)
    job = add(process=dead, started_at=heard, heartbeat_at=heard)
    assert judge(store, job).ended_at == store.jobs.get(job.id).ended_at == heard


def test_jobs_can_be_read_from_a_database_that_cannot_be_written(store, add, dead, monkeypatch):
    def refuse(*_, **__):
        raise StoreUnwritableError("attempt to write a readonly database")

    job = add(process=dead)
    monkeypatch.setattr(store.jobs, "end", refuse)
    assert judge(store, job).state is JobState.INTERRUPTED


def test_removed_folder_leaves_an_interrupted_job(store, add, dead):
    job = add(process=dead)
    for file in Path(job.folder).iterdir():
        file.unlink()
    Path(job.folder).rmdir()
    assert judge(store, job).state is JobState.INTERRUPTED
